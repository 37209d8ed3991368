//go:build unix

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// The first ctrl-C says what happens now, the second ends the program at once,
// here while it waits for a trace that nobody writes.
func TestInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("experiment", "../../configs/my-trace.toml", "-set", "trace="+pipe, "-out", t.TempDir())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	// Opening it waits for the program to do so, which listens by then.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	const want = "interrupted: finishing what is under way; a second ctrl-C ends at once"
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && lines.Text() != want {
	}
	if lines.Text() != want {
		t.Fatalf("the last line is %q, want %q", lines.Text(), want)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("ended with %v, want a signal", err)
	}
}
