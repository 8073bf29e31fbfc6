package collective

// Oldest is the first release whose constants are known.
func Oldest() Version { return releases()[0].Since }

// Assumed says what stands for the constants of a release that are not known, "" where they
// are.
func (v Version) Assumed() string {
	switch {
	case v.less(Oldest()):
		return "the constants of NCCL " + Oldest().String() + ", the first that are known, stand for those of " + v.String()
	case Newest.less(v):
		return "the constants of NCCL " + Newest.String() + ", the last that are known, stand for those of " + v.String()
	}
	return ""
}
