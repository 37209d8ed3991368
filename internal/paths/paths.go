// Package paths words the errors of files for people.
package paths

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Error is err, of a file operation, about path: "PATH: no such file or
// directory". The path stands there once, as the caller knows it, without the
// system call and without names that the caller did not choose, such as those of
// temporary files. An error of another kind keeps its text. err must not be nil.
func Error(path string, err error) error {
	if call := (*fs.PathError)(nil); errors.As(err, &call) {
		err = call.Err
	} else if call := (*os.LinkError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
