// Package shell walks through a script up to the programs that it starts: through variables,
// arrays, arithmetic, functions, loops, here-documents and scripts within scripts, as bash
// would. Nothing is run, and no file and no variable of the environment is looked at: of
// mvdan.cc/sh the parser and the expansion of words are used, not its interpreter. What the
// script alone does not give keeps its name, and where it does not decide a condition there
// is a reading for each way.
//
// Package strategies/launch, next, knows what the programs are.
package shell
