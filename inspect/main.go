package inspect

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"smartswap/internal/nearest"
)

// Exit codes of the command.
const (
	exitDone   = 0
	exitFailed = 1 // what was asked turned out negative, or an interruption
	exitInput  = 2 // unusable flags or files
)

// command is one subcommand. Its run returns nil, errNegative after it has
// printed what is wrong, or an error of one line about the input.
type command struct {
	name, args, help string
	run              func(c *call) error
}

// commands in the order in which the help lists them.
func commands() []command {
	return []command{
		{"info", "PATH", "what is in a recorded workload: operators, kernels, storages, peak memory", runInfo},
		{"convert", "PATH OUT", "write a recorded workload in the native format, or another (-to)", runConvert},
		{"plan", "PATH", "what a planning policy would swap in a recorded iteration", runPlan},
		{"layered", "OUT.trace", "write a small synthetic iteration whose plans are known, in the native format", runLayered},
		{"snapshot", "FILE", "replay an allocator's history through the model and compare", runSnapshot},
	}
}

// errNegative makes the exit code 1: the files are fine, the answer is no.
var errNegative = errors.New("negative")

// call is one use of a subcommand.
type call struct {
	ctx    context.Context
	flags  *flag.FlagSet
	args   []string // as given, then without flags
	usage  string
	stdout io.Writer
	stderr io.Writer
}

// Main is the trace command: it returns the exit code and touches no global
// state. What was asked for goes to stdout, notes and errors to stderr. A ctx
// that ends stops it between two files or devices.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	list := commands()
	if len(args) == 0 || isHelp(args[0]) {
		w, code := stdout, exitDone
		if len(args) == 0 {
			w, code = stderr, exitInput
		}
		fmt.Fprint(w, usage(list))
		return code
	}
	for _, c := range list {
		if c.name == args[0] {
			return run(ctx, c, args[1:], stdout, stderr)
		}
	}
	var names []string
	for _, c := range list {
		names = append(names, c.name)
	}
	fmt.Fprintf(stderr, "trace: %q is not a subcommand; nearest is %s, allowed: %s\n", args[0], nearest.Name(args[0], names), strings.Join(names, ", "))
	return exitInput
}

func isHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

func usage(list []command) string {
	var b strings.Builder
	b.WriteString("usage: trace SUBCOMMAND [flags]\n\n")
	for _, c := range list {
		fmt.Fprintf(&b, "  %-24s %s\n", c.name+" "+c.args, c.help)
	}
	b.WriteString("\ntrace SUBCOMMAND -help tells the flags of one.\n")
	return b.String()
}

func run(ctx context.Context, cmd command, args []string, stdout, stderr io.Writer) int {
	c := &call{ctx: ctx, args: args, stdout: stdout, stderr: stderr}
	c.usage = fmt.Sprintf("usage: trace %s %s [flags]\n\n%s\n\nflags:\n", cmd.name, cmd.args, cmd.help)
	c.flags = flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	c.flags.SetOutput(io.Discard)
	switch err := cmd.run(c); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitDone
	case errors.Is(err, errNegative):
		return exitFailed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		fmt.Fprintf(stderr, "trace %s: interrupted\n", cmd.name)
		return exitFailed
	default:
		fmt.Fprintf(stderr, "trace %s: %v\n", cmd.name, err)
		return exitInput
	}
}

// parse reads flags before, between and after n arguments.
func (c *call) parse(n int) error {
	var plain []string
	for rest := c.args; ; {
		if err := c.flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(c.stdout, c.usage)
				c.flags.SetOutput(c.stdout)
				c.flags.PrintDefaults()
			}
			return err
		}
		if c.flags.NArg() == 0 {
			break
		}
		plain, rest = append(plain, c.flags.Arg(0)), c.flags.Args()[1:]
	}
	if len(plain) != n {
		usage, _, _ := strings.Cut(c.usage, "\n")
		return fmt.Errorf("%d arguments given, want %d: %s", len(plain), n, usage)
	}
	c.args = plain
	return nil
}
