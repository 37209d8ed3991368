package paper

import (
	"image/color"

	"gonum.org/v1/plot/vg"
)

// Sizes of figures: the width of a two-column page.
const (
	figureWidth = 18 * vg.Centimeter
	panelHeight = 5 * vg.Centimeter
	tallPanel   = 8 * vg.Centimeter // with group names turned
	smallPanel  = 4 * vg.Centimeter // of many
	legendSpace = 0.8 * vg.Centimeter
	titleSize   = vg.Length(9)
	textSize    = vg.Length(7)
	smallSize   = vg.Length(5)
	lineWidth   = vg.Length(0.5)
)

// groupFill is the share of a group's width that its bars take; the rest is
// the gap to the next group.
const groupFill = 0.82

// paletteSize is how many series have a colour of their own.
const paletteSize = 8

// palette is Okabe and Ito's set of colours that colour-blind readers can tell
// apart, without black (outlines) and with grey last. Series beyond its length
// start again.
func palette(series int) color.Color {
	colours := [paletteSize]color.RGBA{
		{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
		{0xF0, 0xE4, 0x42, 0xFF}, // yellow
		{0xE6, 0x9F, 0x00, 0xFF}, // orange
		{0xD5, 0x5E, 0x00, 0xFF}, // vermillion
		{0x00, 0x9E, 0x73, 0xFF}, // bluish green
		{0x00, 0x72, 0xB2, 0xFF}, // blue
		{0xCC, 0x79, 0xA7, 0xFF}, // reddish purple
		{0xBB, 0xBB, 0xBB, 0xFF}, // grey
	}
	return colours[series%len(colours)]
}
