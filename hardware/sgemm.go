package hardware

import (
	"fmt"
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// SGEMMLaw is the time of one product of fp32 on vector units (BLAS's sgemm), where s blocks may
// share the K of a tile, whose sums another kernel adds up:
//
//	t = setup + [s > 1]·(split + s·M·N·4 bytes/bandwidth) + ((waves · tile(K/s))^p + (α·bytes/bandwidth)^p)^(1/p)
//	tile(K) = 2·tm·tn·(K + k0 + edge·√(tm·tn)) / (rate · peak / SMs · e(tm,tn))
//
// over the best tile and s of 1 to 16 or as many as fill the SMs once; rate and the form of e are
// GEMMLaw's. Constants are of cuBLAS's kernels, which are the same ones from Ampere on.
type SGEMMLaw struct {
	Tiles     []string      `yaml:"tiles"` // "256x128"
	KOverhead float64       `yaml:"k_overhead"`
	Edge      float64       `yaml:"edge"`
	SmallTile float64       `yaml:"small_tile"`
	Setup     units.Seconds `yaml:"setup"`
	Split     units.Seconds `yaml:"split"`
	Memory    float64       `yaml:"memory"`
	Exponent  float64       `yaml:"exponent"`

	tiles [][2]float64
}

// TileSizes are the parsed tiles, rows by columns.
func (s *SGEMMLaw) TileSizes() [][2]float64 { return s.tiles }

func (s *SGEMMLaw) parse() (err error) {
	if len(s.Tiles) == 0 || !(s.KOverhead >= 0 && s.Edge >= 0 && s.SmallTile >= 0 && s.Setup >= 0 && s.Split >= 0 && s.Memory > 0 && s.Exponent >= 1) ||
		!(s.KOverhead+s.Edge+s.SmallTile+float64(s.Setup+s.Split)+s.Memory+s.Exponent < math.Inf(1)) {
		return fmt.Errorf("sgemm: %+v; it needs tiles, a memory above 0, an exponent of 1 or more, and nothing else below 0", *s)
	}
	s.tiles, err = parseTiles("sgemm.tiles", s.Tiles)
	return err
}
