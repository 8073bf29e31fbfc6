//go:build cgo && linux

package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"
)

// number of a library in shim.h, in the order in which they are opened.
var shimLibraries = []struct {
	name   string
	number C.int
}{{"libcuda", C.PP_CUDA}, {"libnvrtc", C.PP_NVRTC}, {"libcublasLt", C.PP_CUBLASLT}, {"libnccl", C.PP_NCCL}, {"libcudnn", C.PP_CUDNN}}

// driver is the real Driver.
type driver struct {
	libraries []Library
	devices   []Device
	versions  Versions
	opened    map[string]bool // libraries that are there
	gpus      []*gpu
	nvml      *management
}

// Open opens the libraries and finds the GPUs. Without a driver or a GPU the error
// is a *Missing; a library that only some probes need may be missing.
func Open(o Options) (Driver, error) {
	// NVLink multicast (NVLS) of a group that dies can leave the switch of a shared
	// host unusable, so it is used only where the user asks for it.
	setDefault("NCCL_NVLS_ENABLE", "0")
	d := &driver{opened: map[string]bool{}}
	s := newSearch(o.Folders)
	for _, l := range shimLibraries {
		lib := load(s, l.name, l.number)
		d.libraries = append(d.libraries, lib)
		d.opened[l.name] = lib.Err == nil
		if l.name == "libcuda" && lib.Err != nil {
			return nil, &Missing{"no NVIDIA driver found: " + lib.Err.Error() + "; run this on a machine with an NVIDIA GPU and its driver, or " + remedy(l.name)}
		}
	}
	var count, version C.int
	var e C.pp_error
	if C.pp_init(&count, &version, &e) != 0 {
		return nil, &Missing{"the NVIDIA driver finds no usable GPU: " + failure(&e, -1).Error() + "; check nvidia-smi"}
	}
	if count == 0 {
		return nil, &Missing{"the NVIDIA driver finds no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES"}
	}
	d.nvml = manage(o.Folders)
	d.setVersions(int(version))
	for i := range int(count) {
		dev, err := d.device(i)
		if err != nil {
			return nil, err
		}
		d.devices = append(d.devices, dev)
	}
	return d, nil
}

func setDefault(name, value string) {
	if _, set := os.LookupEnv(name); !set {
		os.Setenv(name, value) // with cgo also that of C
	}
}

// load opens a library at the first place that has it with all it needs.
func load(s *search, name string, number C.int) Library {
	lib := Library{Name: name}
	var first error
	for _, path := range s.candidates(name) {
		if name == "libnvrtc" { // finds its built-in functions by name alone
			for _, b := range glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so*")) {
				open(b, true)
			}
		}
		h, err := open(path, false)
		if err != nil {
			if first == nil || filepath.IsAbs(path) {
				first = err
			}
			continue
		}
		if missing := C.pp_bind(number, h); missing != nil {
			first = fmt.Errorf("%s has no function %s", path, C.GoString(missing))
			continue
		}
		var where [4096]C.char
		lib.Path = path
		if C.pp_where(number, &where[0], C.size_t(len(where))) == 0 {
			lib.Path = C.GoString(&where[0])
		}
		return lib
	}
	if first == nil {
		first = fmt.Errorf("%s not found", name)
	}
	lib.Err = fmt.Errorf("%s: %w", name, first)
	return lib
}

func open(path string, global bool) (unsafe.Pointer, error) {
	c := C.CString(path)
	defer C.free(unsafe.Pointer(c))
	var text [1024]C.char
	g := C.int(0)
	if global {
		g = 1
	}
	if h := C.pp_open(c, g, &text[0], C.size_t(len(text))); h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("%s", C.GoString(&text[0]))
}

// failure turns the shim's error into ours.
func failure(e *C.pp_error, device int) error {
	return &Error{Call: C.GoString(&e.call[0]), Code: int(e.code), Name: C.GoString(&e.name[0]), Text: strings.Join(strings.Fields(C.GoString(&e.text[0])), " "), Device: device}
}

// setVersions asks every library for its version.
func (d *driver) setVersions(cuda int) {
	v := &d.versions
	v.CUDA = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	v.Driver = d.nvml.driverVersion()
	if d.opened["libnvrtc"] {
		var major, minor C.int
		if C.pp_nvrtc_version(&major, &minor) == 0 {
			v.NVRTC = fmt.Sprintf("%d.%d", major, minor)
		}
	}
	if d.opened["libcublasLt"] {
		v.CuBLASLt = dotted(int(C.pp_lt_version())) // 130000 is 13.0.0, 120804 12.8.4
	}
	if d.opened["libnccl"] {
		if n := int(C.pp_nccl_version()); n > 0 {
			v.NCCL = dotted(n) // 22809 is 2.28.9
		}
	}
	if d.opened["libcudnn"] {
		v.CuDNN = dotted(int(C.pp_cudnn_version())) // 91002 is 9.10.2
	}
}

// dotted writes a version number major·10000 + minor·100 + patch.
func dotted(n int) string { return fmt.Sprintf("%d.%d.%d", n/10000, n%10000/100, n%100) }

func (d *driver) device(i int) (Device, error) {
	var c C.pp_device
	var e C.pp_error
	if C.pp_device_get(C.int(i), &c, &e) != 0 {
		return Device{}, failure(&e, i)
	}
	dev := Device{
		Index: i, Name: C.GoString(&c.name[0]), Bus: C.GoString(&c.bus[0]), Memory: int64(c.memory), SMs: int(c.sms),
		MaxClock: float64(c.clock_khz) * 1e3, Capability: [2]int{int(c.major), int(c.minor)}, Free: int64(c.memory),
	}
	d.nvml.describe(&dev)
	return dev, nil
}

func (d *driver) Versions() Versions    { return d.versions }
func (d *driver) Libraries() []Library  { return d.libraries }
func (d *driver) Devices() []Device     { return d.devices }
func (d *driver) Now() time.Time        { return time.Now() }
func (d *driver) Sleep(t time.Duration) { time.Sleep(t) }
func (d *driver) Run(code func())       { code() }
func (d *driver) needs(names ...string) error {
	for _, l := range d.libraries {
		for _, n := range names {
			if l.Name == n && l.Err != nil {
				return &Unavailable{l.Err.Error() + "; " + remedy(n)}
			}
		}
	}
	return nil
}

// Close gives the GPUs back.
func (d *driver) Close() error {
	var first error
	for _, g := range d.gpus {
		if err := g.Close(); err != nil && first == nil {
			first = err
		}
	}
	d.nvml.close()
	return first
}
