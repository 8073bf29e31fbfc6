package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// soname is how a library is called by the loader, newest first. The first is what
// a message names.
var sonames = map[string][]string{
	"libcuda":     {"libcuda.so.1", "libcuda.so"},
	"libnvrtc":    {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
	"libcublasLt": {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"},
	"libnccl":     {"libnccl.so.2", "libnccl.so"},
	"libcudnn":    {"libcudnn.so.9"},
	"NVML":        {"libnvidia-ml.so.1"},
}

// search is where libraries are looked for; tests have their own.
type search struct {
	folders []string            // of the flag
	env     func(string) string // the environment
	root    string              // of the file system
	python  []string            // folders of a Python installation: .../lib/pythonX.Y
}

// newSearch looks in the real world.
func newSearch(folders []string) *search {
	s := &search{folders: folders, env: os.Getenv, root: "/"}
	for _, prefix := range s.prefixes() {
		s.python = append(s.python, glob(filepath.Join(prefix, "lib", "python3*"))...)
	}
	return s
}

// prefixes are where a Python with its packages may live: the active environment,
// the python3 of the path, then the usual places.
func (s *search) prefixes() []string {
	var out []string
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if p := s.env(v); p != "" {
			out = append(out, p)
		}
	}
	if p, err := exec.LookPath("python3"); err == nil {
		out = append(out, filepath.Dir(filepath.Dir(p)))
		if real, err := filepath.EvalSymlinks(p); err == nil {
			out = append(out, filepath.Dir(filepath.Dir(real)))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, filepath.Join(home, ".local"))
	}
	out = append(out, "/usr/local", "/usr")
	out = append(out, glob("/opt/*")...)
	return append(out, glob("/opt/*/.venv")...)
}

// glob is filepath.Glob, the newest version first; the patterns are ours.
func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	slices.Reverse(found)
	return found
}

// target is the folder of CUDA's libraries for this processor.
var target = map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}[runtime.GOARCH]

// candidates are the files and names to try for a library, in order: the flag's
// folders, the environment, the loader's own path, the usual CUDA folders, Python
// packages.
func (s *search) candidates(library string) []string {
	names := sonames[library]
	var out []string
	in := func(folders ...string) {
		for _, f := range folders {
			for _, n := range names {
				for _, file := range glob(filepath.Join(f, n)) {
					if !slices.Contains(out, file) {
						out = append(out, file)
					}
				}
			}
		}
	}
	cuda := func(home string) []string {
		return []string{filepath.Join(home, "lib64"), filepath.Join(home, "targets", target, "lib"), filepath.Join(home, "lib")}
	}
	in(s.folders...)
	in(filepath.SplitList(s.env("PERFPLAN_CUDA_LIBRARY_PATH"))...)
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home := s.env(v); home != "" {
			in(cuda(home)...)
		}
	}
	out = append(out, names...)
	at := func(p string) string { return filepath.Join(s.root, p) }
	for _, home := range append([]string{at("usr/local/cuda")}, glob(at("usr/local/cuda-*"))...) {
		in(cuda(home)...)
	}
	multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	in(at("usr/local/nvidia/lib64"), at("usr/local/nvidia/lib"), at("usr/lib/"+multiarch), at("usr/lib64"), at("usr/lib/wsl/lib"), at("opt/cuda/lib64"))
	for _, p := range s.python {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			for _, f := range append(glob(filepath.Join(p, packages, "nvidia", "*", "lib")), filepath.Join(p, packages, "torch", "lib")) {
				in(f)
			}
		}
	}
	return out
}

// remedy says how to help perfplan to a library.
func remedy(library string) string {
	return strings.Replace("install it, or name its folder with --lib DIR or PERFPLAN_CUDA_LIBRARY_PATH (looked for: NAMES)", "NAMES", strings.Join(sonames[library], ", "), 1)
}
