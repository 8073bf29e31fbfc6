// Package yamlx decodes YAML and JSON files strictly into Go structs.
//
// It walks the yaml.v3 node tree itself, so that every complaint names line and
// column, an unknown key is answered with the nearest known one, and all
// complaints of a file come at once. Types with UnmarshalText read their own
// scalars (units); types with DecodeNode read their own nodes (a model that may be a
// name or a mapping). Set changes one value at a dotted path, for flags; Encode writes files.
//
// A file holds one document of plain values: no second document, no tags, no merge
// keys, no key twice; aliases are replaced by what they stand for. Size, nesting and
// expansion are bounded, so a hostile file costs no more than an error.
//
// model, hardware, strategies and calibrate/runs load their files through it; model
// comes next.
package yamlx
