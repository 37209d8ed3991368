package results

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"smartswap/internal/nearest"
)

// Tables of published measurements: numbers and where they stand.
//
//go:embed reference/*.csv
var referenceFiles embed.FS

// Measurement is one published number about one training job.
type Measurement struct {
	ID     string
	Source string
	Device string
	Model  string // as workloads.LookupModel knows it
	Seq    int64  // tokens per sequence
	Metric string // a row column, such as tokens_per_s_per_device
	Value  float64
	Unit   string
	Note   string
}

// ReferenceTable is the committed table called name, as it stands. An unknown
// name is an error that says which there are.
func ReferenceTable(name string) (*Frame, error) {
	file, err := referenceFiles.Open("reference/" + name + ".csv")
	if err != nil {
		have := References()
		return nil, fmt.Errorf("no such reference; nearest is %s, allowed: %s", nearest.Name(name, have), strings.Join(have, ", "))
	}
	defer file.Close()
	f, err := ReadCSV(file)
	if err != nil {
		return nil, fmt.Errorf("reference %s: %w", name, err)
	}
	return f, nil
}

// Reference is the committed table called name of measurements of training
// jobs. One without their columns is an error.
func Reference(name string) ([]Measurement, error) {
	f, err := ReferenceTable(name)
	if err != nil {
		return nil, err
	}
	for _, column := range []string{"id", "source", "device", "model", "seq", "metric", "value", "unit", "note"} {
		if f.Index(column) < 0 {
			return nil, fmt.Errorf("reference %s: no column %q: not a table of measurements of training jobs", name, column)
		}
	}
	list := make([]Measurement, len(f.Rows))
	for r := range f.Rows {
		text := func(column string) string { return f.At(r, column).String() }
		m := Measurement{
			ID: text("id"), Source: text("source"), Device: text("device"), Model: text("model"),
			Metric: text("metric"), Unit: text("unit"), Note: text("note"),
		}
		if m.Seq, err = strconv.ParseInt(text("seq"), 10, 64); err != nil {
			return nil, fmt.Errorf("reference %s: %s: seq: %w", name, m.ID, err)
		}
		if m.Value, err = strconv.ParseFloat(text("value"), 64); err != nil {
			return nil, fmt.Errorf("reference %s: %s: value: %w", name, m.ID, err)
		}
		list[r] = m
	}
	return list, nil
}

// OpenReference opens the committed table called name as it is, for readers of
// more columns. The error of an unknown one wraps fs.ErrNotExist.
func OpenReference(name string) (fs.File, error) {
	return referenceFiles.Open("reference/" + name + ".csv")
}

// References lists the committed tables, sorted.
func References() []string {
	entries, err := fs.ReadDir(referenceFiles, "reference")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".csv"))
	}
	return names
}
