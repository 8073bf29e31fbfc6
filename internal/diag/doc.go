// Package diag is the form of every complaint about user input: what file, line
// and column, what value, what rule it breaks and what to do instead.
//
// A file is checked to its end and all errors are returned together as a List;
// each prints the offending line with a caret. Note is the milder form: a
// warning that travels beside a result as a value, never to a log.
//
// internal/yamlx raises these errors while it decodes; the command line prints
// them and exits with code 2.
package diag
