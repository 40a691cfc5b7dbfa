// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "nvpair/shared/manualnodes"
)

const (
	otherUUID = "99999999-2222-4333-8444-555555555555"
	peerInfo  = `{"hostUuid":"` + uuid + `","services":{"ni":14318}}`
)

// peers is a network in which a peer answers at each of these.
func peers(t *testing.T, hosts ...string) *network {
	answers := map[string]string{}
	for _, h := range hosts {
		answers[net.JoinHostPort(h, "14318")+"/v1/node-info"] = peerInfo
	}
	return newNetwork(t, answers)
}

func TestANameIsFollowedToWhereItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peers(t, "10.0.0.5", "10.0.0.55")
		n.resolve("desk.local", "10.0.0.5")
		c := start(t, newDir(t), n)
		_, found := c.add(`{"address":"desk.local"}`)
		require.Equal(t, []string{"10.0.0.5"}, found.Addresses)
		require.Equal(t, "desk.local", found.Address, "as typed")
		<-time.After(time.Minute)
		c.Quiet() // no news where nothing changed

		n.resolve("desk.local", "10.0.0.55")
		require.Equal(t, []string{"10.0.0.55"}, c.event(wire.NotifyUpdated).Addresses)

		n.set("10.0.0.6:14318/v1/node-info", `{"hostUuid":"`+otherUUID+`"}`)
		n.resolve("desk.local", "10.0.0.6")
		found = c.event(wire.NotifyUpdated)
		require.Equal(t, []string{"10.0.0.6"}, found.Addresses)
		require.Equal(t, otherUUID, found.HostUUID)

		n.drop("10.0.0.6:14318/v1/node-info")
		found = c.event(wire.NotifyUpdated)
		require.Empty(t, found.Addresses)
		require.Equal(t, otherUUID, found.HostUUID)
		c.stop()
	})
}

func TestOnlyAddressesAtWhichThePeerAnsweredAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peers(t, "10.0.0.5", "fd00::5", "fe80::5%eth0")
		n.set("10.0.0.6:14318/v1/node-info", `{"hostUuid":"`+otherUUID+`"}`)
		n.set("10.0.0.9:14318/", "silent")
		n.resolve("desk.local", "fe80::5%eth0,fd00::5,::ffff:10.0.0.5,10.0.0.5,10.0.0.6,10.0.0.8,10.0.0.9")
		c := start(t, newDir(t), n)
		begin := time.Now()
		_, found := c.add(`{"address":"desk.local"}`)
		require.Equal(t, othersWithin, time.Since(begin), "a silent one holds up little")
		require.Equal(t, []string{"10.0.0.5", "fd00::5"}, found.Addresses)
		require.Equal(t, uuid, found.HostUUID)

		n.resolve("desk.local", "10.0.0.9,fd00::5,10.0.0.5") // another order
		n.set("10.0.0.5:14318/", "silent")
		<-time.After(time.Minute)
		c.Quiet() // one that is slow does not come and go
		n.drop("10.0.0.5:14318/")
		n.set("10.0.0.5:14318/v1/node-info", `{"hostUuid":"`+otherUUID+`"}`)
		require.Equal(t, []string{"fd00::5"}, c.event(wire.NotifyUpdated).Addresses)
		c.stop()
	})
}

func TestOfAManyFoldNameOnlyAFewAddressesAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peers(t)
		addresses := "10.0.1.0"
		for i := range 50 {
			addresses += "," + netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()
		}
		n.resolve("many.example", addresses)
		c := start(t, newDir(t), n)
		_, found := c.add(`{"address":"many.example"}`)
		require.Contains(t, found.Error, "refused")
		asked := slices.DeleteFunc(n.requests(), func(r string) bool { return r == "dial many.example:11434" || r == "dial many.example:1234" })
		require.Len(t, asked, maxAddresses)
		c.stop()
	})
}

func TestALinkLocalLiteralIsAskedButNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peers(t, "fe80::5%eth0", "fd00::5")
		c := start(t, newDir(t), n)
		_, found := c.add(`{"address":"fe80::5%eth0"}`)
		require.True(t, found.Peer)
		require.Empty(t, found.Addresses)
		_, found = c.add(`{"address":"fd00::5"}`)
		require.Equal(t, []string{"fd00::5"}, found.Addresses)
		c.stop()
	})
}
