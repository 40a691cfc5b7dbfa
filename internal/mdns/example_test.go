// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"context"
	"fmt"
	"sync"

	"nvpair/internal/mdns"
	"nvpair/internal/mdns/mdnstest"
)

func Example() {
	network := mdnstest.New() // leave Config.Network out for the machine's own
	machine := network.Host()
	machine.Attach("eth0", "lan", "192.0.2.1/24")
	conn := mdns.New(mdns.Config{Network: machine})

	if _, err := conn.Publish(mdns.Service{Instance: "Kim's printer", Type: "_ipp._tcp", Host: "kim", Port: 631,
		TXT: []string{"rp=print"}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	browser, err := conn.Browse("_ipp._tcp", func(s mdns.Sighting) {
		if s.Goodbye {
			fmt.Println(s.Instance, "is gone")
			return
		}
		fmt.Println(s.Instance, s.Host, s.Port, s.TXT, s.Addrs)
		cancel()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	browser.Query()

	var running sync.WaitGroup
	running.Go(func() { conn.Run(ctx) })
	running.Wait()
	// Output: Kim's printer kim.local 631 [rp=print] [192.0.2.1]
}
