package hw

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"smartswap/internal/nearest"
	"smartswap/internal/paths"
)

// catalog holds one file per device and one per node. A file gives numbers as
// text with units, by the keys of Node.Set, and names what it builds on:
//
//	extends = "910b2-8"            a node to start from
//	[device]
//	extends = "910b2"              a device to start from
//	[link]
//	rate = "55GB/s"
//	[source]
//	"link.rate" = "where this number comes from"
//
// A device file has the keys of [device] at its top. A key ending in
// ".default" stands for every number below it that the file does not name.
//
//go:embed catalog
var catalog embed.FS

// Nodes are the names of the catalogue's nodes, in alphabetical order.
func Nodes() []string { return catalogNames("node") }

// Devices are the names of the catalogue's devices, in alphabetical order.
func Devices() []string { return catalogNames("device") }

func catalogNames(kind string) []string {
	var names []string
	files, _ := fs.ReadDir(catalog, path.Join("catalog", kind)) // embedded, so it is there
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// Load returns a node of the catalogue, or of a file of the same form when
// name ends in ".toml". The node is the caller's own. Errors are one line with
// file, key and value: an unknown node or device (the nearest and all names
// are listed), a file that cannot be read, a key that does not exist, a value
// that is not allowed.
func Load(name string) (*Node, error) {
	n := &Node{Source: map[string]string{}}
	if err := n.apply("node", name, nil); err != nil {
		return nil, err
	}
	n.Name = strings.TrimSuffix(filepath.Base(name), ".toml")
	if err := n.Validate(); err != nil {
		return nil, fmt.Errorf("node %q: %w", name, err)
	}
	return n, nil
}

// apply puts the numbers of a file over n, after those of the files it
// extends. Trail is the chain of files being applied, to refuse circles.
func (n *Node) apply(kind, name string, trail []string) error {
	text, err := readFile(kind, name)
	if err != nil {
		return err
	}
	if slices.Contains(trail, kind+" "+name) {
		return fmt.Errorf("%s %q extends itself", kind, name)
	}
	trail = append(trail, kind+" "+name)

	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return fmt.Errorf("%s %q: %s", kind, name, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	values := map[string]string{}
	if err := flatten(values, "", tree); err != nil {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	sources := take(values, "source.")
	if kind == "device" {
		values, sources = prefixed("device.", values), prefixed("device.", sources)
	}

	if base, ok := values["extends"]; ok {
		if err := n.apply("node", base, trail); err != nil {
			return fmt.Errorf("%s %q: extends: %w", kind, name, err)
		}
		delete(values, "extends")
	}
	if base, ok := values["device.extends"]; ok {
		if err := n.apply("device", base, trail); err != nil {
			return fmt.Errorf("%s %q: extends: %w", kind, name, err)
		}
		delete(values, "device.extends")
	} else if kind == "device" {
		// Not a variant: nothing of a device applied earlier shows through.
		n.Device = Device{}
		maps.DeleteFunc(n.Source, func(key, _ string) bool { return strings.HasPrefix(key, "device.") })
	}
	if kind == "device" {
		n.Device.Name = strings.TrimSuffix(filepath.Base(name), ".toml")
	}
	// In this order "device.mem" comes before "device.mem.norm".
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := n.set(key, values[key], sourceOf(key, sources)); err != nil {
			return fmt.Errorf("%s %q: %w", kind, name, err)
		}
	}
	return nil
}

// readFile is the text of a catalogue entry, or of a file when name is a path.
func readFile(kind, name string) (string, error) {
	if strings.HasSuffix(name, ".toml") {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", paths.Error(name, err)
		}
		return string(text), nil
	}
	known := catalogNames(kind)
	if !slices.Contains(known, name) {
		return "", fmt.Errorf("unknown %s %q, the nearest is %q; the catalogue has %s (or give a path ending in .toml)",
			kind, name, nearest.Name(name, known), strings.Join(known, ", "))
	}
	text, err := catalog.ReadFile(path.Join("catalog", kind, name+".toml"))
	return string(text), err
}

// flatten fills into with the leaves of a TOML tree by dotted key.
func flatten(into map[string]string, prefix string, tree map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		full := strings.TrimSuffix(prefix+key, ".default")
		switch v := tree[key].(type) {
		case map[string]any:
			if err := flatten(into, prefix+key+".", v); err != nil {
				return err
			}
		case string:
			into[full] = v
		case int64, float64:
			into[full] = fmt.Sprint(v)
		default:
			return fmt.Errorf("%s = %v: want a string or a number", full, v)
		}
	}
	return nil
}

// take moves the entries below prefix out of values.
func take(values map[string]string, prefix string) map[string]string {
	taken := map[string]string{}
	for key, value := range values {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			taken[rest] = value
			delete(values, key)
		}
	}
	return taken
}

func prefixed(prefix string, values map[string]string) map[string]string {
	out := make(map[string]string, len(values))
	for key, value := range values {
		out[prefix+key] = value
	}
	return out
}

// sourceOf is the source of a key: its own, or that of the nearest table that
// holds it; empty when the file gives none.
func sourceOf(key string, sources map[string]string) string {
	for {
		if text, ok := sources[key]; ok {
			return text
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return ""
		}
		key = key[:dot]
	}
}
