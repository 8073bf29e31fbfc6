package yamlx

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perfplan/perfplan/internal/diag"
)

// remedies complete what yaml.v3 says of a text that is not YAML. parser marks
// what its parser finds, whose lines it counts from 0; the scanner's are from 1.
var remedies = []struct {
	problem string
	parser  bool
	remedy  string
}{
	{"did not find expected ',' or", true, "; put a comma between the items and close the bracket"},
	{"did not find expected '-'", true, "; check the indentation, here or just below"},
	{"did not find expected key", true, "; check the indentation and the quotes, here or just below"},
	{"did not find expected node content", true, "; a value is missing"},
	{"did not find expected <document start>", true, "; check the brackets and the indentation, here or just above"},
	{"found duplicate %", true, ""},
	{"found incompatible YAML document", true, ""},
	{"found undefined tag handle", true, "; write the value without the tag"},
	{"found character that cannot start any token", false, "; indent with spaces, not tabs, and quote text that starts with @, % or `"},
	{"found a tab character", false, "; indent with spaces, not tabs"},
	{"did not find expected alphabetic or numeric character", false, "; quote text that starts with * or &"},
	{"mapping values are not allowed", false, "; check the indentation, and quote text that holds a colon and a space"},
	{"could not find expected ':'", false, "; a key ends with a colon and a space"},
	{"block sequence entries are not allowed", false, "; begin the list on a line of its own"},
	{"found unexpected end of stream", false, "; close the quote"},
	{"found unknown escape character", false, "; write \\\\ for a backslash, or use single quotes"},
	{"exceeded max depth", false, "; write it flatter"},
}

var (
	atLine = regexp.MustCompile(`^line (\d+): `)
	anchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxError turns yaml.v3's "yaml: line N: problem" into a positioned error
// with a remedy.
func (d *Document) syntaxError(text string) *diag.Error {
	problem, line, col := strings.TrimPrefix(text, "yaml: "), 1, 0 // no line is said of the first
	if m := atLine.FindStringSubmatch(problem); m != nil {
		problem = problem[len(m[0]):]
		line, _ = strconv.Atoi(m[1])
	}
	for _, r := range remedies {
		if strings.HasPrefix(problem, r.problem) {
			if r.parser && strings.Contains(text, "line ") {
				line++
			}
			problem += r.remedy
			break
		}
	}
	if m := anchor.FindStringSubmatch(problem); m != nil {
		problem = "*" + m[1] + " refers to nothing above; mark a value with &" + m[1] + " or quote the text"
		line, col = d.find(func(s string) int { return strings.Index(s, "*"+m[1]) })
	} else if problem == "control characters are not allowed" {
		problem += "; remove them"
		line, col = d.find(func(s string) int {
			return strings.IndexFunc(s, func(r rune) bool { return r <= 0x9F && r != '\t' && !unicode.IsPrint(r) || r == 0xFFFE || r == 0xFFFF })
		})
	}
	line = min(line, len(d.text))
	if col == 0 { // not known: point at the first word
		s := d.line(line)
		col = 1 + len(s) - len(strings.TrimLeft(s, " "))
	}
	return &diag.Error{File: d.Name, Line: line, Col: col, Source: d.line(line), Message: "is not valid YAML or JSON: " + problem}
}

// find returns the place of the first line in which at finds something.
func (d *Document) find(at func(line string) int) (line, col int) {
	for i, s := range d.text {
		if j := at(s); j >= 0 {
			return i + 1, 1 + utf8.RuneCountInString(s[:j])
		}
	}
	return 1, 1
}
