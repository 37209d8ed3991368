package inspect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"smartswap/internal/nearest"
	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// listFlag collects a flag that may be repeated.
type listFlag []string

// String implements flag.Value.
func (l *listFlag) String() string { return strings.Join(*l, " ") }

// Set implements flag.Value.
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

// traceFlags are the flags for opening a workload.
func (c *call) traceFlags() *trace.Options {
	o := &trace.Options{}
	c.flags.StringVar(&o.Network, "network", "", "`name` of the network, for a folder with several")
	c.flags.IntVar(&o.Batch, "batch", 0, "batch `size`, for a folder with several, or one that no name tells")
	c.flags.StringVar(&o.Net, "net", "", "network text that belongs to a kernel-time `file`")
	c.flags.StringVar(&o.Scratch, "scratch", "", "workspace `file` that belongs to a kernel-time file")
	c.flags.IntVar(&o.Globals, "globals", 0, "`border` of the ids below which tensors outlive an iteration")
	c.flags.StringVar(&o.Member, "member", "", "`file` to read of an archive that holds several")
	c.flags.StringVar(&o.Kineto, "kineto", "", "Kineto trace `file` of the same run, for a graph without times")
	c.flags.StringVar(&o.KinetoMember, "kineto-member", "", "`file` to read of that, if it is an archive of several")
	c.flags.StringVar(&o.Step, "step", "", "`name` of the one recorded step to read; all of them if left out")
	c.flags.BoolVar(&o.NoGaps, "no-gaps", false, "leave out the time that the recorded host took")
	return o
}

// open opens a workload and tells on stderr what its reader had to do.
func (c *call) open(path string, o *trace.Options) (workloads.Workload, trace.Report, error) {
	w, rep, err := trace.Open(path, *o)
	if err != nil {
		return nil, rep, err
	}
	for _, n := range rep.Notes {
		fmt.Fprintln(c.stderr, n)
	}
	return w, rep, c.ctx.Err()
}

// setOption gives "key=value" to a struct with TOML keys. The value needs no
// quotes. keys are what the struct knows.
func setOption(target any, setting string, keys []string) error {
	key, value, ok := strings.Cut(setting, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !ok || strings.ContainsAny(value, "\r\n") {
		return fmt.Errorf("-set %q: want key=value on one line", setting)
	}
	known := false
	for _, k := range keys {
		known = known || k == key
	}
	if !known {
		return fmt.Errorf("-set %s: unknown key; nearest is %s, allowed: %s", setting, nearest.Name(key, keys), strings.Join(keys, ", "))
	}
	_, err := toml.Decode(key+" = "+value, target)
	if err == nil {
		return nil
	}
	if _, err2 := toml.Decode(fmt.Sprintf("%s = %q", key, value), target); err2 == nil {
		return nil
	}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("-set %s: %s", setting, parse.Message)
	}
	return fmt.Errorf("-set %s: %w", setting, err)
}
