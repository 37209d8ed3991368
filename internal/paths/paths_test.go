package paths

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestError(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "none")
	_, opened := os.Open(absent)
	_, temporary := os.CreateTemp(absent, "x.*")
	for _, err := range []error{opened, temporary, os.Rename(absent, absent+"2")} {
		got := Error("a.trace", err)
		if got.Error() != "a.trace: no such file or directory" || !errors.Is(got, fs.ErrNotExist) {
			t.Errorf("%q becomes %q", err, got)
		}
	}
	if got := Error("a.trace", errors.New("too long")); got.Error() != "a.trace: too long" {
		t.Errorf("%q", got)
	}
}
