// Package formatstest finds the real files that readers are held against.
package formatstest

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Shared is a path in the folder of real files, shared/data beside the module;
// the test is skipped where it is absent.
func Shared(t testing.TB, path ...string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("no go.mod above the test")
		}
		root = filepath.Dir(root)
	}
	file := filepath.Join(append([]string{root, "..", "shared", "data"}, path...)...)
	if _, err := os.Stat(file); err != nil {
		t.Skip("the real files are not here: ", err)
	}
	return file
}

// Open opens a file of Shared and unpacks it if its name ends in ".gz".
func Open(t testing.TB, path ...string) io.Reader {
	t.Helper()
	name := Shared(t, path...)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(name, ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}
