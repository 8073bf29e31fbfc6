package hardware

import "testing"

func TestLoadAll(t *testing.T) {
	for _, n := range Names() {
		if _, err := Load(n); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
}

func TestByDevice(t *testing.T) {
	p, ok := ByDevice("NVIDIA H200")
	if !ok || p.Name != "h200-sxm" {
		t.Errorf("NVIDIA H200 is h200-sxm, not %v", p)
	}
	for _, name := range []string{"", "NVIDIA H300"} {
		if _, ok := ByDevice(name); ok {
			t.Errorf("there is no %q", name)
		}
	}
}
