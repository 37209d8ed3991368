package results

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Manifest says how a result set was made. It holds no wall-clock time, so
// that equal runs have equal manifests.
type Manifest struct {
	Name     string `json:"name"`
	Complete bool   `json:"complete"` // false: interrupted, rows.csv has the finished cells only

	Code Code `json:"code"`

	Config     string   `json:"config"`      // the file's text
	ConfigHash string   `json:"config_hash"` // SHA-256 of the text and the settings
	Settings   []string `json:"settings,omitempty"`
	Quick      bool     `json:"quick,omitempty"`
	Seed       int64    `json:"seed"`

	Cells  int    `json:"cells"`  // finished
	Points int    `json:"points"` // rows
	Runs   int    `json:"runs"`   // distinct simulations behind the rows
	Events uint64 `json:"events"` // simulated events of those runs

	// Notes say what readers of traces skipped, repaired and inferred.
	Notes []string `json:"notes,omitempty"`
	// Fingerprint combines the fingerprints of all rows in order.
	Fingerprint string `json:"fingerprint"`

	// Columns is the glossary of rows.csv.
	Columns []Glossary `json:"columns"`
}

// Glossary explains one column.
type Glossary struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Code identifies the program that made a result set.
type Code struct {
	Commit  string   `json:"commit"` // "unknown" outside a version-controlled build
	Dirty   string   `json:"dirty"`  // true, false or unknown
	Go      string   `json:"go"`
	Modules []Module `json:"modules"`
}

// Module is one dependency of the program and the sum of its content.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum"`
}

// BuildCode reads what the linker stamped into the running program. "go run"
// stamps no commit; then git is asked, if the working directory is in a
// checkout of this project.
func BuildCode() Code {
	c := Code{Commit: "unknown", Dirty: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return c
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			c.Commit = s.Value
		case "vcs.modified":
			c.Dirty = s.Value
		}
	}
	for _, m := range info.Deps {
		c.Modules = append(c.Modules, Module{m.Path, m.Version, m.Sum})
	}
	if c.Commit == "unknown" {
		c.askGit(info.Main.Path)
	}
	return c
}

// askGit fills in commit and dirty flag from the checkout around the working
// directory, if its go.mod names this module.
func (c *Code) askGit(module string) {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return
	}
	mod, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(top)), "go.mod"))
	if err != nil || module == "" || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		return
	}
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return
	}
	status, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return
	}
	c.Commit = strings.TrimSpace(string(commit))
	c.Dirty = strconv.FormatBool(len(status) > 0)
}

// Write writes m as indented JSON.
func (m *Manifest) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(m)
}
