package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trace": main})
}

// The scripts run the built command the way a user does. $SNAPSHOTS is the
// folder of small memory snapshots.
func TestScript(t *testing.T) {
	snapshots, err := filepath.Abs(filepath.Join("..", "..", "formats", "snapshot", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("SNAPSHOTS", snapshots)
			return nil
		},
	})
}
