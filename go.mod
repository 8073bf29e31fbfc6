module github.com/perfplan/perfplan

go 1.26.0

require (
	github.com/agnivade/levenshtein v1.2.2
	github.com/stretchr/testify v1.12.1
	gopkg.in/yaml.v3 v3.0.1
	pgregory.net/rapid v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
