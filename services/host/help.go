// SPDX-License-Identifier: Apache-2.0

package host

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// usage prints what the program can do.
func (c *cli) usage(out io.Writer) {
	fmt.Fprintf(out, "%s makes your machines that run language models one.\n\nCommands:\n", name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, cmd := range commands() {
		fmt.Fprintf(w, "  %s %s\t%s\n", name, cmd.name, cmd.help)
	}
	fmt.Fprintf(w, "  %s --version\tprint the version\n", name)
	_ = w.Flush()
	fmt.Fprintf(out, "\n%s COMMAND --help shows what a command takes. NVPAIR_DATA_DIR chooses the node's data directory.\n", name)
}

// help answers nvpair help, with or without the words of a command.
func (c *cli) help(args []string) int {
	words, code, ok := c.parse("help", args, 2, func(*flag.FlagSet) {})
	if !ok {
		return code
	}
	if len(words) == 0 {
		c.usage(c.std.Out)
		return exitOK
	}
	wanted := strings.Join(words, " ")
	if cmd, ok := find(words); ok && cmd.name == wanted {
		return cmd.run(c, []string{"--help"})
	}
	if len(below(wanted)) > 0 {
		return c.group(wanted, []string{"--help"})
	}
	return c.misuse("", "unknown command %q", wanted)
}

// below returns the commands that begin with that word and go on.
func below(word string) []command {
	var list []command
	for _, cmd := range commands() {
		if strings.HasPrefix(cmd.name, word+" ") {
			list = append(list, cmd)
		}
	}
	return list
}

// group answers a word that only begins commands.
func (c *cli) group(word string, args []string) int {
	if len(args) > 0 && (strings.TrimLeft(args[0], "-") == "help" || args[0] == "-h") {
		c.commandHelp(word, nil)
		return exitOK
	}
	var verbs []string
	for _, cmd := range below(word) {
		verbs = append(verbs, strings.TrimPrefix(cmd.name, word+" "))
	}
	return c.misuse(word, "%s is needed", strings.Join(verbs, " or "))
}

// commandHelp prints what a command takes and what begins like it. There are no
// flags for a word that is no command by itself.
func (c *cli) commandHelp(word string, flags *flag.FlagSet) {
	for _, cmd := range commands() {
		if cmd.name == word || strings.HasPrefix(cmd.name, word+" ") {
			fmt.Fprintf(c.std.Out, "%s\n  %s\n", strings.TrimSpace(strings.Join([]string{name, cmd.name, cmd.args}, " ")), cmd.help)
		}
	}
	if flags == nil {
		return
	}
	w := tabwriter.NewWriter(c.std.Out, 0, 0, 2, ' ', 0)
	flags.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		switch f.DefValue {
		case "", "0", "false":
		default:
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace("--"+f.Name+" "+strings.ToUpper(kind)), text)
	})
	_ = w.Flush()
}
