package experiments

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever the file, it is read or refused in one line: no panic.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("../configs/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(content))
	}
	f.Add(fakeFile)
	f.Add("[[strategy]]\nname = 1\n[strategy.options]\na = [[1]]\n[axes]\nx = {y = []}")
	r := &fake{}
	f.Fuzz(func(t *testing.T, content string) {
		c, err := Parse("f.toml", content)
		if err == nil {
			_, err = c.Cells(r.Devices)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("the message has several lines: %q", err)
		}
	})
}
