// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAcceleratorsOfTheIORegistry: see NI-36.
func TestAcceleratorsOfTheIORegistry(t *testing.T) {
	for _, tt := range []struct {
		file     string
		adapters []Adapter
		readings map[string]Reading
	}{
		{"ioreg-apple.plist",
			[]Adapter{{Key: "ioreg:10000037b", Name: "Apple M1 Pro", Total: 64}},
			map[string]Reading{"ioreg:10000037b": {Used: 1234567, UsePct: 42, UseKnown: true}}},
		{"ioreg-intel.plist",
			[]Adapter{
				{Key: "ioreg:1000003b2", Name: "AMD Radeon Pro 5500M", Total: 8176 << 20},
				{Key: "ioreg:1000003c4", Name: "IntelAccelerator", Total: 3000},
				{Key: "ioreg:1000003d1", Name: "NVDAAccelerator"},
			},
			map[string]Reading{
				"ioreg:1000003b2": {Used: 500, UsePct: 100, UseKnown: true},
				"ioreg:1000003c4": {Used: 1000, UsePct: 3, UseKnown: true},
				"ioreg:1000003d1": {},
			}},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", tt.file))
		require.NoError(t, err)
		adapters, readings, err := parseIORegistry(text, 64)
		require.NoError(t, err)
		require.Equal(t, tt.adapters, adapters, tt.file)
		require.Equal(t, tt.readings, readings, tt.file)
	}
}

func TestWhatIsNoPropertyListIsAnError(t *testing.T) {
	deep := strings.Repeat("<array>", 100) + strings.Repeat("</array>", 100)
	for _, text := range []string{"", "x", "<plist>", "<plist><dict>", "<plist><dict><key>a</key></dict></plist>",
		"<plist><dict><string>a</string></dict></plist>", "<plist><array><integer>1</array></plist>", "<plist>" + deep + "</plist>"} {
		_, _, err := parseIORegistry([]byte(text), 64)
		require.Error(t, err, text)
	}
	adapters, _, err := parseIORegistry([]byte(`<plist version="1.0"><array/></plist>`), 64)
	require.NoError(t, err)
	require.Empty(t, adapters)
}

func FuzzIORegistry(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "ioreg-intel.plist"))
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		adapters, readings, err := parseIORegistry(text, 64)
		if err != nil && (adapters != nil || readings != nil) {
			t.Errorf("an error with results: %v", err)
		}
		for key, r := range readings {
			if r.UsePct > 100 {
				t.Errorf("%s: %d %%", key, r.UsePct)
			}
		}
	})
}

// TestAdaptersOfTheRegistryOfWindows: see NI-37.
func TestAdaptersOfTheRegistryOfWindows(t *testing.T) {
	radeon := directXEntry{"AMD Radeon RX 7900 XTX", 0x1_0000C853, 24 << 30, 7, 0x1002}
	former := directXEntry{"AMD Radeon RX 7900 XTX", 0x1_0000BBBB, 24 << 30, 6, 0x1002}
	basic := directXEntry{"Microsoft Basic Render Driver", 0xC8A0, 0, 7, 0x1414}
	remote := directXEntry{"Microsoft Remote Display Adapter", 1, 0, 7, 0x1414}
	want := Adapter{Key: "luid_0x00000001_0x0000c853_phys_0", Name: "AMD Radeon RX 7900 XTX", Total: 24 << 30}
	require.Equal(t, []Adapter{want}, directXAdapters([]directXEntry{basic, former, radeon, remote, {luid: 5, lastSeen: 7}}, 7))
	require.Len(t, directXAdapters([]directXEntry{former, radeon}, 8), 2, "the list is of another start: keep all")
	require.Len(t, directXAdapters([]directXEntry{former, radeon}, 0), 2)
	require.Empty(t, directXAdapters([]directXEntry{basic}, 7))
}

// TestEnginesOfWindowsAreAddedUp: see NI-38.
func TestEnginesOfWindowsAreAddedUp(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want engine
		ok   bool
	}{
		{"pid_4711_luid_0x00000000_0x0000C853_phys_0_eng_0_engtype_3D", engine{"luid_0x00000000_0x0000c853_phys_0", "3d"}, true},
		{"luid_0x00000000_0x0000c853_phys_0_eng_11_engtype_Compute_1", engine{"luid_0x00000000_0x0000c853_phys_0", "compute_1"}, true},
		{"pid_4711_luid_0x00000000_0x0000C853_phys_1_eng_5_engtype_VideoDecode", engine{"luid_0x00000000_0x0000c853_phys_1", "videodecode"}, true},
		{"pid_4711_luid_0x00000000_0x0000C853_phys_0_eng_0_engtype_", engine{}, false},
		{"pid_4711_luid_0x00000000_0x0000C853_phys_0_eng_0", engine{}, false},
		{"pid_4711_luid_zero_0x0000C853_phys_0_eng_0_engtype_3D", engine{}, false},
		{"_Total", engine{}, false},
		{"", engine{}, false},
	} {
		if got, ok := parseEngineInstance(tt.in); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %+v, %t", tt.in, got, ok)
		}
	}
	const a, b = "luid_0x00000000_0x0000c853_phys_0", "luid_0x00000000_0x0000dddd_phys_0"
	require.Equal(t, map[string]uint32{a: 41, b: 100}, engineUse([]sample{
		{"pid_1_" + a + "_eng_0_engtype_3D", 30.25}, {"pid_2_" + a + "_eng_0_engtype_3D", 10.25},
		{"pid_2_" + a + "_eng_1_engtype_Copy", 40.4}, {"pid_3_" + a + "_eng_0_engtype_3D", -5},
		{"pid_3_" + a + "_eng_0_engtype_3D", math.NaN()}, {"_Total", 99},
		{"pid_1_" + b + "_eng_0_engtype_3D", 70}, {"pid_2_" + b + "_eng_0_engtype_3D", 70},
	}))
	require.Empty(t, engineUse(nil))
}
