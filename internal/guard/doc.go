// Package guard holds no code, only tests of the repository itself: imports point
// one way, every package says what it is for and what comes next, no file names a
// place on somebody's machine, and no Go file outgrows its reader.
//
// A new package gets its place in the table of layers here; nothing imports guard,
// and nothing comes next.
package guard
