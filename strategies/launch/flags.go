package launch

import (
	"regexp"
	"strconv"
	"strings"
)

// flag is an argument with its value: "true" where it has none.
type flag struct {
	value string
	line  int
	open  string // the variable in it that the file does not give
}

// flags are arguments by their names, with underscores.
type flags map[string]flag

var (
	dumped     = regexp.MustCompile(`(?m)^(?:.*:)?[ \t]{2,}([a-z][a-z0-9_]*) \.{3,} (.*?)\s*$`)
	assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=(.+)$`)
	quoted     = regexp.MustCompile(`^\s*(?:export\s+|local\s+|readonly\s+)?[A-Za-z_][A-Za-z0-9_]*=["']`)
	variable   = regexp.MustCompile(`\$(?:\{([A-Za-z_0-9]+)(?::?[-=]([^{}]*))?\}|([A-Za-z_][A-Za-z_0-9]*|[0-9]))`)
	arithmetic = regexp.MustCompile(`\$\(\(([^()]*)\)\)`)
	product    = regexp.MustCompile(`^\s*(\d+)\s*([*/+-])\s*(\d+)\s*$`)
)

// readFlags finds arguments in a text: as a log of Megatron-LM lists them, or else after two
// dashes anywhere, with the variables of a shell script that the script itself sets.
func readFlags(text string) (out flags, logged bool) {
	out = flags{}
	for _, at := range dumped.FindAllStringSubmatchIndex(text, -1) {
		out[text[at[2]:at[3]]] = flag{value: text[at[4]:at[5]], line: 1 + strings.Count(text[:at[0]], "\n")}
	}
	if len(out) > 0 {
		return out, true
	}
	set := map[string]string{}
	last := ""
	for i, line := range strings.Split(text, "\n") {
		words := fields(line)
		for k, w := range words {
			m := assignment.FindStringSubmatch(w)
			if m == nil || strings.HasPrefix(m[2], "(") {
				continue
			}
			if value := m[2]; quoted.MatchString(line) { // all that is quoted
				words = append([]string{value}, words[k+1:]...)
				set[m[1]], _ = expand(strings.Join(words, " "), set)
				last = ""
				break
			}
			set[m[1]], _ = expand(m[2], set)
		}
		for _, w := range words {
			if _, after, ok := strings.Cut(w, "(--"); ok {
				w = "--" + after
			}
			name, isFlag := strings.CutPrefix(w, "--")
			if !isFlag || name == "" {
				if f, ok := out[last]; ok && f.value == "true" && w != "(" && w != ")" && w != "-" {
					if !strings.Contains(w, "$((") { // the end of an array
						w = strings.TrimRight(w, ")")
					}
					f.value, f.open = expand(w, set)
					out[last] = f
				}
				last = ""
				continue
			}
			name, value, given := strings.Cut(name, "=")
			name = strings.ReplaceAll(strings.TrimRight(name, ":)"), "-", "_")
			f := flag{value: "true", line: i + 1}
			if last = name; given {
				f.value, f.open = expand(value, set)
				last = ""
			}
			out[name] = f
		}
	}
	return out, false
}

// fields are the words of a line of shell, without quotes, comments and continuations.
func fields(line string) []string {
	var quote rune
	var b strings.Builder
	var out []string
	flush := func() {
		if b.Len() > 0 {
			out = append(out, strings.Fields(b.String())...) // what is quoted may be several arguments
			b.Reset()
		}
	}
	depth := 0
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(c)
		case (c == '"' || c == '\'') && depth == 0:
			quote = c
		case c == '#' && b.Len() == 0:
			flush()
			return out
		case c == '{' || c == '(' && strings.HasSuffix(b.String(), "$"):
			depth++
			b.WriteRune(c)
		case c == '}' && depth > 0:
			depth--
			b.WriteRune(c)
		case depth == 0 && (c == ' ' || c == '\t' || c == '\r' || c == ';' || c == ','):
			flush()
		case c == '\\':
		default:
			if c == ')' && depth > 0 && strings.Contains(b.String(), "$(") && strings.HasSuffix(b.String(), ")") {
				depth = 0
			}
			b.WriteRune(c)
		}
	}
	flush()
	return out
}

// expand puts in the variables that are set, and sums and products of them; open is one that is not.
func expand(s string, set map[string]string) (value, open string) {
	for range 10 {
		m := variable.FindStringSubmatchIndex(s)
		if m == nil {
			break
		}
		name, fallback := "", ""
		if m[2] >= 0 {
			name = s[m[2]:m[3]]
		} else {
			name = s[m[6]:m[7]]
		}
		if m[4] >= 0 {
			fallback = strings.Trim(s[m[4]:m[5]], `"'`)
		}
		v, ok := set[name]
		switch {
		case ok:
		case fallback != "":
			v = fallback
		default:
			return s, name
		}
		s = s[:m[0]] + v + s[m[1]:]
	}
	s = arithmetic.ReplaceAllStringFunc(s, func(e string) string {
		m := product.FindStringSubmatch(arithmetic.FindStringSubmatch(e)[1])
		if m == nil {
			return e
		}
		a, _ := strconv.ParseInt(m[1], 10, 64)
		b, _ := strconv.ParseInt(m[3], 10, 64)
		switch m[2] {
		case "*":
			a *= b
		case "+":
			a += b
		case "-":
			a -= b
		case "/":
			if b == 0 {
				return e
			}
			a /= b
		}
		return strconv.FormatInt(a, 10)
	})
	return s, ""
}
