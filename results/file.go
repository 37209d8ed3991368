package results

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"smartswap/internal/paths"
)

// WriteFile writes a file through a temporary neighbour and a rename, so that
// path holds its former content or all of the new, whatever happens. Missing
// folders are made.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("results: %w", paths.Error(path, err))
	}
	// The whole content is made first: an error while it is being made
	// leaves no temporary file.
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return fmt.Errorf("results: %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("results: %w", paths.Error(path, err))
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
			err = fmt.Errorf("results: %w", paths.Error(path, err))
		}
	}()
	if _, err := tmp.Write(content.Bytes()); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
