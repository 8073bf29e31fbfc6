package shell_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch/shell"
)

// nothing is set before a script.
func nothing(string) map[string]string { return nil }

// commands writes what a reading starts, one a line.
func commands(r shell.Reading) string {
	var lines []string
	for _, c := range r.Commands {
		var words []string
		for _, w := range c.Words {
			text, _ := r.Show(w)
			if text == "" || strings.ContainsAny(text, " \n") {
				text = "<" + text + ">"
			}
			words = append(words, text)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// TestCommands: what scripts start that decide all that they ask.
func TestCommands(t *testing.T) {
	for script, want := range map[string]string{
		"A=3; run $A ${A} \"$A\" '$A' \\$A a$A": "run 3 3 3 $A $A a3",
		"A='b c'; run $A \"$A\" x$A-y":          "run b c <b c> xb c-y",
		"run \"\" '' $EMPTY":                    "run <> <> $EMPTY",
		"E=; run $E \"$E\" x":                   "run <> x",
		"A=(1 '2 3'); A+=(4); run ${A[@]} \"${A[@]}\" \"${A[*]}\" ${#A[@]} ${A[1]} $A": "run 1 2 3 4 1 <2 3> 4 1 <2 3> 4 3 2 3 1",
		"A=(); run \"${A[@]}\" x":                              "run x",
		"A=x; A+=y; run $A":                                    "run xy",
		"run ${A:-1} ${A-2} ${B:=3} $B ${A:+4} ${B:+5} ${C:?}": "run 1 2 3 3 5 $C",
		"A=$1; run ${A:-4} ${#A}":                              "run 4 $1",
		"A=2; run $((A * 3 + ${B:-1})) $((A > 1 ? 5 : 6)) $((7 / 2)) $((N * 2)) $((1 / 0))": "run 7 5 3 $N <$((1 / 0))>",
		"((A = 2, A++)); run $A":                                                                    "run 3",
		"let 'S = 1 << 12' T=S/2; let U+=1; run $S $T $U":                                           "run 4096 2048 <let U+=1>",
		"declare -i A=3*4; declare B=2; readonly C=5; run $A $B $C":                                 "run 12 2 5",
		"A=4; run $(expr $A \\* 8) $(expr 7 / 2) $(expr $N + 1) $(expr length abc)":                 "run 32 3 <$(expr $N + 1)> <$(expr length abc)>",
		"run a \\\n  # x \\\n --b 2 \\\n --c":                                                       "run a\n--b 2 --c",
		"run a --z # x \\\n --b 2\nrun '#' \\\n c":                                                  "run a --z\n--b 2\nrun # c",
		"A=8; run ${A/8/9} ${A%8} $(nproc) $(echo $A) `echo x`":                                     "run ${A/8/9} ${A%8} $(nproc) 8 x",
		"A[1]=2; declare -A B=([x]=1); run ${A[1]} ${B[x]}":                                         "run $A $B",
		"if [ 1 -lt 2 ]; then run a; elif true; then run b; else run c; fi":                         "run a",
		"A=13b; case $A in 7b) run 7 ;; 13b|13B) run 13 ;; *) run x ;; esac":                        "run 13",
		"A=ab; [[ $A == a* && ! $A =~ ^b ]] && B=yes || B=no; run $B":                               "run yes",
		"false || run; ! false && run x":                                                            "run\nrun x",
		"for i in 1 2; do run $i; done; for i in {3..4}; do run $i; done":                           "run 1\nrun 2\nrun 3\nrun 4",
		"for ((i = 0; i < 2; i++)); do run $i; done":                                                "run 0\nrun 1",
		"for i in 1 2 3; do [ $i = 2 ] && continue; [ $i = 3 ] && break; run $i; done":              "run 1",
		"i=0; while [ $i -lt 2 ]; do run $i; i=$((i+1)); done; until true; do run x; done":          "run 0\nrun 1",
		"f() { local a=$1; shift; run $a \"$@\" $#; b=2; return; run x; }; a=9; f 1 2 3; run $a $b": "run 1 2 3 2\nrun 9 2",
		"A=1; (A=2; run $A; exit); run $A; exit; run never":                                         "run 2\nrun 1",
		"A=2 run; run $A":                   "run\nrun $A",
		"A='run x'; eval $A; eval \"if [\"": "run x\nif [",
		"srun -n 2 bash -lc 'run a; run b'": "srun -n 2 run a\nsrun -n 2 run b",
		"sbatch <<E\nrun $A\nE\n":           "sbatch\nrun $A",
		"while [ $# -gt 0 ]; do run $1; shift; done; for a in \"$@\"; do run; done":        "",
		"[ -z \"$A\" ] && A=1; [ -n \"$B\" ] && B=2; [ \"x$C\" = x ] && C=3; run $A $B $C": "run 1 $B 3",
		"cd x; mkdir y; echo z; source w; export A=1; ulimit -n 1":                         "",
		"A=(--freq [0]*3+[1]*58); run ${A[@]}":                                             "run --freq [0]*3+[1]*58",
		"D=<the data>\nrun $D":                                                             "run $D",
		"read A; run $A; unset A; run x$A":                                                 "run $A\nrun x",
		"f() { f; }; f; run x":                                                             "run x",
	} {
		all := shell.Read(script, nothing)
		require.Len(t, all, 1, script)
		require.Equal(t, want, commands(all[0]), script)
	}
	require.Nil(t, shell.Read(strings.Repeat("if [\n", 20), nothing))
	require.Nil(t, shell.Read(strings.Repeat("x", 1<<20), nothing))
}

// TestWays: a script is read for each way of each condition that it does not decide, but not
// for ways on which it complains and exits.
func TestWays(t *testing.T) {
	for script, want := range map[string][]string{
		"if [ $A = 1 ]; then B=2; else B=3; fi; run $B":           {": run 2", "line 1 asks [ $A = 1 ]: run 3"},
		"B=1\ncheck && B=2\nrun $B":                               {": check\nrun 2", "line 2 asks check: check\nrun 1"},
		"case $A in x) B=1 ;; *) B=2 ;; esac; run $B":             {": run 1", "line 1 asks $A in x: run 2"},
		"[ -d $A ] || exit 1; run":                                {": run", "line 1 asks [ -d $A ]: "},
		"if [ -f x ]; then usage; exit; fi; run":                  {": run", "line 1 asks [ -f x ]: usage"},
		"[ $# -lt 1 ] && exit; run":                               {": run"},
		"if [ $A = 1 ]; then exit; fi; [ $B = 1 ] && C=1; run $C": {": run 1", "line 1 asks [ $A = 1 ]: ", "line 1 asks [ $B = 1 ]: run $C"},
		"f() { [ $1 = 1 ] && run; }; f 1; f $A":                   {": run\nrun", "line 1 asks [ $1 = 1 ]: run"},
	} {
		var got []string
		for _, r := range shell.Read(script, nothing) {
			got = append(got, r.By+": "+commands(r))
		}
		require.Equal(t, want, got, script)
	}
}

// TestReading: what else a script says.
func TestReading(t *testing.T) {
	preset := func(string) map[string]string { return map[string]string{"N": "4"} }
	all := shell.Read("cat <<E > a$X.json\n{\"n\": $N, \"m\": $M}\nE\necho b > b; sed s/a/b/ c > d\nA='--x 1'\nP=<fill in>\n", preset)
	require.Len(t, all, 1)
	r := all[0]
	require.Equal(t, "4", r.Preset["N"])
	require.Equal(t, "{\"n\": 4, \"m\": auto}\n", r.Fill(r.Files["a$X.json"], "auto"))
	require.Len(t, r.Files, 2)
	require.Contains(t, r.Words, []string{"--x", "1"})
	require.Equal(t, []string{"line 6, which is no shell: > must be followed by a word"}, r.Notes)
	text, open := r.Show(r.Files["a$X.json"])
	require.Contains(t, text, `"m": $M`)
	require.Equal(t, "$M", open)
}

// TestEnds: scripts that never end, or grow, do not.
func TestEnds(t *testing.T) {
	for _, script := range []string{
		"while true; do :; done", "for ((;;)); do f; done", "f() { f; f; f; }; f", "A=x; while :; do A=$A$A; done; run $A", "until false; do for i in {1..999}; do :; done; done",
		"A=xxxxxxxx; A=$A$A$A$A$A$A$A$A; A=$A$A$A$A$A$A$A$A; A=$A$A$A$A$A$A$A$A; run " + strings.Repeat("$A", 40_000),
		strings.Repeat("[ $A ] && B=1; check || C=2\n", 500), strings.Repeat("eval ", 10_000) + "x", strings.Repeat("(", 10_000), strings.Repeat("$((", 5_000),
	} {
		for _, r := range shell.Read(script, nothing) {
			require.Less(t, len(commands(r)), 1<<20)
		}
	}
}
