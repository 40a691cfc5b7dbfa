// SPDX-License-Identifier: Apache-2.0

package host

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

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
		{"serve", "[--log-level L] [--proxy-engines LIST] [--broker-path PATH]", "run a node on this machine until it is stopped", (*cli).serve},
		{"status", "[--json]", "show the node: exit status 0 running, 1 degraded or starting, 2 not running", (*cli).status},
		{"jobs", "[--watch] [--json]", "list the requests made at this node that run and ran", (*cli).jobs},
		{"nodes", "[--watch] [--json]", "list all nodes, how they are reached and what they have", (*cli).nodes},
		{"node add", "ADDRESS [--name N] [--ollama-port P] [--lmstudio-port P]", "add a machine with an engine by its host name or IP address", (*cli).nodeAdd},
		{"node remove", "NAME|ADDRESS", "remove one that was added by address", (*cli).nodeRemove},
		{"errors", "[--watch] [--json]", "list what is wrong now, and what to do about it", (*cli).errors},
		{"errors clear", "ID", "take an error of this node off the list", (*cli).errorsClear},
		{"call", "METHOD [JSON|-] [--timeout T]", "call a JSON-RPC method of the node and print its result", (*cli).call},
		{"stop", "", "stop the node and wait until it is gone", (*cli).stop},
		{"help", "[COMMAND]", "print what a command takes", (*cli).help},
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
	if cmd, ok := find(args); ok {
		return cmd.run(c, args[len(strings.Fields(cmd.name)):])
	}
	switch strings.TrimLeft(args[0], "-") {
	case "version":
		fmt.Fprintln(std.Out, version)
		return exitOK
	case "help", "h":
		return c.help(args[1:])
	}
	if len(below(args[0])) > 0 {
		return c.group(args[0], args[1:])
	}
	return c.misuse("", "unknown command %q", args[0])
}

// find returns the command whose words the arguments begin with, the longest.
func find(args []string) (found command, ok bool) {
	for _, cmd := range commands() {
		words := strings.Fields(cmd.name)
		if len(args) >= len(words) && slices.Equal(words, args[:len(words)]) && len(cmd.name) > len(found.name) {
			found, ok = cmd, true
		}
	}
	return found, ok
}

// singleDash finds the option in what package flag says of one, which names it with
// one dash.
var singleDash = regexp.MustCompile(`^(flag provided but not defined: |flag needs an argument: |invalid (?:boolean )?value ".*" for (?:flag )?)-`)

// parse parses a command's flags. Up to maxArgs arguments may follow them; flags
// may also stand behind the arguments. If the command is not to go on, ok is false
// and code its exit status.
func (c *cli) parse(cmd string, args []string, maxArgs int, define func(*flag.FlagSet)) (rest []string, code int, ok bool) {
	fs := flag.NewFlagSet(name+" "+cmd, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // what it says takes several lines
	define(fs)
	for {
		if err := fs.Parse(args); err != nil {
			if err == flag.ErrHelp {
				c.commandHelp(cmd, fs)
				return nil, exitOK, false
			}
			return nil, c.misuse(cmd, "%s", singleDash.ReplaceAllString(err.Error(), "$1--")), false
		}
		if args = fs.Args(); len(args) == 0 {
			break
		}
		rest = append(rest, args[0])
		args = args[1:]
	}
	if len(rest) > maxArgs {
		return nil, c.misuse(cmd, "unexpected argument %q", rest[maxArgs]), false
	}
	return rest, exitOK, true
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

// misuse says in one line what is wrong with a command line and where there is
// help, and returns the status for that. The command is "" for the program itself.
func (c *cli) misuse(cmd, format string, args ...any) int {
	who := strings.TrimSpace(name + " " + cmd)
	fmt.Fprintf(c.std.Err, "%s: %s; see %s --help\n", who, sentence(fmt.Sprintf(format, args...)), who)
	return exitUsage
}
