// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package hardware

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlDriver asks NVIDIA's driver by its library, which is looked for at run time.
//
// Where that library or a function of it is missing, calling it ends the process,
// and no recover helps. So nothing is called unless Init succeeded, and nothing
// newer than the oldest driver in use unless the library has it (NI-35).
type nvmlDriver struct {
	lib     nvml.Interface
	open    bool // Init succeeded and Shutdown has not been called since
	total2  bool // the library has the second form of the memory's figures
	devices []nvmlDevice
}

type nvmlDevice struct {
	key string
	nvml.Device
}

// nvmlDrivers returns the driver, for builds that have it.
func nvmlDrivers() []driver { return []driver{&nvmlDriver{lib: nvml.New()}} }

func (d *nvmlDriver) adapters(context.Context) ([]Adapter, error) {
	if err := d.init(); err != nil {
		return nil, err
	}
	count, ret := d.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, d.fail("count devices", ret)
	}
	d.devices = nil
	var list []Adapter
	for i := range count {
		device, ret := d.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // that one only
		}
		key, ret := device.GetUUID()
		if ret != nvml.SUCCESS {
			continue
		}
		a := Adapter{Key: key}
		if name, ret := device.GetName(); ret == nvml.SUCCESS {
			a.Name = name
		}
		total, _, ret := d.memory(device)
		a.Total, a.Unified = total, ret == nvml.ERROR_NOT_SUPPORTED
		list = append(list, a)
		d.devices = append(d.devices, nvmlDevice{key, device})
	}
	return list, nil
}

func (d *nvmlDriver) readings(context.Context) (map[string]Reading, error) {
	if !d.open {
		return nil, errAbsent
	}
	if _, ret := d.lib.DeviceGetCount(); ret != nvml.SUCCESS {
		return nil, d.fail("count devices", ret)
	}
	readings := make(map[string]Reading, len(d.devices))
	for _, device := range d.devices {
		var r Reading
		if _, used, ret := d.memory(device.Device); ret == nvml.SUCCESS {
			r.Used = used
		}
		// A lost device, or one that does not tell, keeps its row without a reading.
		if use, ret := device.GetUtilizationRates(); ret == nvml.SUCCESS {
			r.UsePct, r.UseKnown = min(use.Gpu, 100), true
		}
		readings[device.key] = r
	}
	return readings, nil
}

// memory returns total and used bytes.
func (d *nvmlDriver) memory(device nvml.Device) (total, used uint64, ret nvml.Return) {
	if d.total2 {
		m, ret := device.GetMemoryInfo_v2()
		return m.Total, m.Used, ret
	}
	m, ret := device.GetMemoryInfo()
	return m.Total, m.Used, ret
}

func (d *nvmlDriver) init() error {
	if d.open {
		return nil
	}
	switch ret := d.lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		return errAbsent
	default:
		return fmt.Errorf("start NVML: error %d", ret) // its text would be a call into the library
	}
	d.open = true
	d.total2 = d.lib.Extensions().LookupSymbol("nvmlDeviceGetMemoryInfo_v2") == nil
	return nil
}

// fail ends the use of the library, for it to be started afresh.
func (d *nvmlDriver) fail(what string, ret nvml.Return) error {
	_ = d.lib.Shutdown()
	d.open, d.devices = false, nil
	return fmt.Errorf("%s by NVML: error %d", what, ret)
}
