// SPDX-License-Identifier: Apache-2.0

package host

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"nvpair/internal/worker"
)

// name is the binary, as in its messages and log lines.
const name = "nvpair"

// Exit statuses of the commands.
const (
	exitOK     = 0
	exitFailed = 1 // the answer was an error, or the node is degraded
	exitUsage  = 2 // wrong command line; of status: no node is running
)

// command is one subcommand.
type command struct {
	name, args, help string
	run              func(c *cli, args []string) int
}

func commands() []command {
	return []command{
		{"serve", "", "run a node on this machine until it is stopped", (*cli).serve},
		{"status", "[--json]", "show the node: exit status 0 running, 1 degraded or starting, 2 not running", (*cli).status},
		{"jobs", "[--watch] [--json]", "list the requests made at this node that run and ran", (*cli).jobs},
		{"nodes", "[--watch] [--json]", "list all nodes, how they are reached and what they have", (*cli).nodes},
		{"node add", "ADDRESS [--name N]", "add a machine with an engine by its host name or IP address", (*cli).nodeAdd},
		{"node remove", "NAME|ADDRESS", "remove one that was added by address", (*cli).nodeRemove},
		{"call", "METHOD [JSON]", "call a JSON-RPC method of the node and print its result", (*cli).call},
		{"stop", "", "stop the node and wait until it is gone", (*cli).stop},
	}
}

// cli is what the commands share.
type cli struct {
	std     worker.Streams
	version string
}

// Main runs the command line and returns the exit status.
func Main(args []string, version string, std worker.Streams) int {
	c := &cli{std: std, version: version}
	if len(args) == 0 {
		c.usage(std.Err)
		return exitUsage
	}
	for _, cmd := range commands() {
		if words := strings.Fields(cmd.name); len(args) >= len(words) && slices.Equal(words, args[:len(words)]) {
			return cmd.run(c, args[len(words):])
		}
	}
	if args[0] == "node" {
		fmt.Fprintf(std.Err, "%s node: add or remove is needed; %s nodes lists them\n", name, name)
		return exitUsage
	}
	switch strings.TrimLeft(args[0], "-") {
	case "version":
		fmt.Fprintln(std.Out, version)
		return exitOK
	case "help", "h":
		c.usage(std.Out)
		return exitOK
	}
	fmt.Fprintf(std.Err, "%s: unknown command %q; %s --help lists them\n", name, args[0], name)
	return exitUsage
}

func (c *cli) usage(out io.Writer) {
	fmt.Fprintf(out, "%s makes your machines that run language models one.\n\nCommands:\n", name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, cmd := range commands() {
		fmt.Fprintf(w, "  %s %s %s\t%s\n", name, cmd.name, cmd.args, cmd.help)
	}
	fmt.Fprintf(w, "  %s --version\tprint the version\n", name)
	_ = w.Flush()
	fmt.Fprintf(out, "\n%s COMMAND --help shows a command's flags. NVPAIR_DATA_DIR chooses the node's data directory.\n", name)
}

// parse parses a command's flags. Up to maxArgs arguments may follow them; flags
// may also stand behind the arguments.
func (c *cli) parse(cmd string, args []string, maxArgs int, define func(*flag.FlagSet)) (rest []string, code int, ok bool) {
	fs := flag.NewFlagSet(name+" "+cmd, flag.ContinueOnError)
	fs.SetOutput(c.std.Err)
	define(fs)
	fs.Usage = func() { c.commandUsage(cmd, fs) }
	for {
		if err := fs.Parse(args); err != nil {
			if err == flag.ErrHelp {
				return nil, exitOK, false
			}
			return nil, exitUsage, false // the flag package has said why
		}
		if args = fs.Args(); len(args) == 0 {
			break
		}
		rest = append(rest, args[0])
		args = args[1:]
	}
	if len(rest) > maxArgs {
		fmt.Fprintf(c.std.Err, "%s %s: unexpected argument %q\n", name, cmd, rest[maxArgs])
		return nil, exitUsage, false
	}
	return rest, exitOK, true
}

// commandUsage prints what one command takes.
func (c *cli) commandUsage(cmd string, fs *flag.FlagSet) {
	for _, x := range commands() {
		if x.name == cmd {
			fmt.Fprintf(c.std.Err, "%s %s %s\n  %s\n", name, x.name, x.args, x.help)
		}
	}
	fs.PrintDefaults()
}

// say prints a line for people.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintln(c.std.Out, sentence(fmt.Sprintf(format, args...)))
}

// fail prints an error and returns the status of a failed command.
func (c *cli) fail(err error) int {
	fmt.Fprintf(c.std.Err, "%s: %s\n", name, sentence(err.Error()))
	return exitFailed
}
