package history

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"smartswap/formats/snapshot"
)

// FuzzReplay: whatever a readable file claims, the replay ends without a panic,
// with a result or an error.
func FuzzReplay(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "formats", "snapshot", "testdata", "*.pickle"))
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := snapshot.Read(bytes.NewReader(b), "f")
		if err != nil {
			return
		}
		for device := range 2 {
			setup, _ := Infer(s)
			h, err := Rebuild(s, device, setup.Options)
			if err != nil {
				continue
			}
			if r, err := Replay(h, setup, 3); (r == nil) == (err == nil) {
				t.Fatalf("result %v, error %v", r, err)
			}
		}
	})
}
