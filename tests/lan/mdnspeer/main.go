// SPDX-License-Identifier: Apache-2.0

// Command mdnspeer publishes and browses one service type over multicast DNS, for tests. It prints each sighting as
// a line of JSON and does what the lines of its input say:
//
//	txt <string> ...   replaces the TXT record
//	changed            looks the interfaces up
//
// The end of its input makes it say goodbye and exit.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"nvpair/internal/mdns"
	"nvpair/internal/netwatch"
)

func main() { os.Exit(run(os.Args[1:])) }

// askEvery is the interval of the questions. The first one is asked at once.
const askEvery = time.Second

func run(args []string) int {
	flags := flag.NewFlagSet("mdnspeer", flag.ContinueOnError)
	var service mdns.Service
	flags.StringVar(&service.Type, "type", "_peer._tcp", "service `type`")
	flags.StringVar(&service.Instance, "instance", "", "`name` to publish; empty only browses")
	port := flags.Uint("port", 1, "its port")
	txt := flags.String("txt", "", "its TXT record, one string")
	poll := flags.Duration("poll", time.Minute, "interval at which the interfaces are looked up")
	watch := flags.Bool("watch", false, "look the interfaces up only when the system tells of a change")
	debounce := flags.Duration("debounce", 100*time.Millisecond, "how old a change of them is when it counts")
	if flags.Parse(args) != nil {
		return 2
	}
	service.Port, service.TXT = uint16(*port), []string{*txt}
	if *watch {
		*poll, *debounce = -1, -1
	}
	conn := mdns.New(mdns.Config{
		Log:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		PollEvery: *poll,
		Debounce:  *debounce,
	})
	if err := serve(conn, service, *watch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve publishes, browses and obeys until the input ends.
func serve(conn *mdns.Conn, service mdns.Service, watch bool) error {
	var publication *mdns.Publication
	if service.Instance != "" {
		var err error
		if publication, err = conn.Publish(service); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	browser, err := conn.Browse(service.Type, func(s mdns.Sighting) { _ = out.Encode(s) })
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { conn.Run(ctx) })
	if watch {
		running.Go(func() { netwatch.Run(ctx, netwatch.Config{}, conn.NetworkChanged) })
	}
	running.Go(func() {
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for {
			browser.Query()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return obey(os.Stdin, conn, publication)
}

// obey carries out commands until there are no more.
func obey(in io.Reader, conn *mdns.Conn, publication *mdns.Publication) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0:
		case words[0] == "txt" && publication != nil:
			if err := publication.SetTXT(words[1:]); err != nil {
				return err
			}
		case words[0] == "changed":
			conn.NetworkChanged()
		default:
			return fmt.Errorf("no such command: %q", lines.Text())
		}
	}
	return lines.Err()
}
