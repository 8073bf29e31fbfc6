package units

import (
	"fmt"
	"strconv"
	"strings"
)

// Release is the month of a software stack, as NVIDIA names its containers: 24.07 is
// July 2024. Zero means the newest.
type Release int // months since 2000

// UnmarshalText reads a release such as 24.07.
func (r *Release) UnmarshalText(text []byte) error {
	year, month, _ := strings.Cut(string(text), ".")
	y, err1 := strconv.ParseUint(year, 10, 8)
	m, err2 := strconv.ParseUint(month, 10, 8)
	if err1 != nil || err2 != nil || len(year) != 2 || len(month) != 2 || m < 1 || m > 12 {
		return fmt.Errorf("%q is not a release; write year and month, as in \"24.07\"", text)
	}
	if y < 17 || y > 40 {
		return fmt.Errorf("%q is no month of software that trains on these GPUs; write year and month from 17.01 on, as in \"24.07\"", text)
	}
	*r = Release(12*y + m - 1)
	return nil
}

// MarshalText writes a release as it is read; nothing for the newest.
func (r Release) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String is the year and month.
func (r Release) String() string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("%02d.%02d", r/12, r%12+1)
}

// Before reports whether software of release r is older than o.
func (r Release) Before(o Release) bool { return r > 0 && r < o }
