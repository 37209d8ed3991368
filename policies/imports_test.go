package policies_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "smartswap"

// layers says what each folder may import from this module, itself included
// where it has subfolders. This is what keeps a policy from looking at the
// workload, and the layers of the house from growing into each other. Tests
// are free.
var layers = map[string][]string{
	"sim":         {},
	"internal":    {"internal"},
	"hw":          {"sim", "internal", "hw"},
	"profilers":   {"sim", "internal", "profilers"},
	"policies":    {"sim", "internal", "profilers", "policies"},
	"workloads":   {"sim", "internal", "hw", "workloads", "formats"},
	"formats":     {"sim", "internal", "hw", "workloads", "formats"},
	"eager":       {"sim", "internal", "hw", "workloads", "profilers", "policies", "eager"},
	"results":     {"sim", "internal", "hw", "workloads", "formats", "profilers", "policies", "eager", "results"},
	"paper":       {"sim", "internal", "results", "paper"},
	"experiments": {"sim", "internal", "hw", "workloads", "formats", "profilers", "policies", "eager", "results", "paper", "experiments"},
	"inspect":     {"sim", "internal", "hw", "workloads", "formats", "profilers", "policies", "eager", "results", "paper", "inspect"},
	"cmd":         {"experiments", "inspect"},
}

// single says the same of folders that are exceptions in their house: the pure
// allocators, and the reader that replays recorded histories through them.
var single = map[string][]string{
	"eager/alloc":         {"sim", "internal"},
	"eager/alloc/history": {"sim", "internal", "formats", "eager/alloc"},
}

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// imports lists what the non-test files of each package import from this
// module, by folder.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	files := token.NewFileSet()
	house := os.DirFS(root(t))
	err := fs.WalkDir(house, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := fs.Stat(house, path.Join(name, "go.mod")); name != "." && err == nil {
				return fs.SkipDir // a module of its own
			}
			if base := d.Name(); base == "testdata" || name != "." && (base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(house, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(files, name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if inside, ok := strings.CutPrefix(p, module+"/"); ok {
				all[dir] = append(all[dir], inside)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// within tells whether folder is one of the allowed ones or lies below it.
func within(folder string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return folder == a || strings.HasPrefix(folder, a+"/")
	})
}

func TestImportsPointDown(t *testing.T) {
	all := imports(t)
	if len(all["policies"]) == 0 {
		t.Fatal("no imports found: the test looks in the wrong place")
	}
	for dir, list := range all {
		top, _, _ := strings.Cut(dir, "/")
		allowed, known := layers[top]
		if !known {
			t.Errorf("folder %s is not part of the house: give it a place in layers", dir)
			continue
		}
		if few, ok := single[dir]; ok {
			allowed = few
		}
		for _, imported := range list {
			if !within(imported, allowed) {
				t.Errorf("%s imports %s; allowed are %v", dir, imported, allowed)
			}
		}
	}
}
