package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestSizes: a quantity of any size keeps three digits, in a unit that suits it.
func TestSizes(t *testing.T) {
	for want, got := range map[string]string{
		"0":              digits(0),
		"0.00000123":     digits(1.234e-6),
		"0.0239":         digits(0.02393),
		"9.88":           digits(9.876),
		"10.0":           digits(9.996),
		"less than 0.01": fewText(0.0099),
		"0.489":          fewText(0.48886),
		"99.9":           digits(99.94),
		"1,000":          digits(999.6),
		"62,644":         digits(62644.4),
		"10.77 s":        lasting(10.77),
		"469.3 us":       lasting(469.3 * us),
		"1.00 min":       lasting(60),
		"16.6 min":       lasting(996.7),
		"1.00 h":         lasting(3600),
		"23.9 h":         lasting(86040),
		"1.00 days":      lasting(86400),
		"29.0 days":      lasting(29 * 86400),
		"1,234 days":     lasting(1234 * 86400),
		"0.0449":         days(1.0776 * 3600),
		"16.0 Wh":        powerBill(57.6e3),
		"33.3 kWh":       powerBill(1.2e8),
		"97.0 MWh":       powerBill(97 * 3.6e9),
		"1,234 MWh":      powerBill(1234 * 3.6e9),
		"0.0639":         megawattHours(2.3e8),
		"$0.00123":       dollars(0.00123),
		"$0.16":          dollars(0.1646),
		"$16.02":         dollars(16.02),
		"$157":           dollars(156.7),
		"$314,072":       dollars(314072.4),
		"0 s":            lasting(units.Seconds(0)),
	} {
		require.Equal(t, want, got)
	}
}
