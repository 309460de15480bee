package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// writeTables prints field_specs.txt (`<list> <group> <version> <kind> <create> <path>`, `-` for nothing, name references
// with the group, version and kind of what is referred to in front), types.json (a swagger of those types that have
// lists to be merged, reduced to that) and scopes.txt (the types whose scope is known, those without a namespace marked).
func writeTables(dir string) error {
	if err := writeFieldSpecs(filepath.Join(dir, "field_specs.txt")); err != nil {
		return err
	}
	return writeTypes(dir)
}

type fieldSpec struct {
	Group   string `json:"group" yaml:"group"`
	Version string `json:"version" yaml:"version"`
	Kind    string `json:"kind" yaml:"kind"`
	Path    string `json:"path" yaml:"path"`
	Create  bool   `json:"create" yaml:"create"`
}

type backReference struct {
	Group      string      `yaml:"group"`
	Version    string      `yaml:"version"`
	Kind       string      `yaml:"kind"`
	FieldSpecs []fieldSpec `yaml:"fieldSpecs"`
}

func writeFieldSpecs(path string) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kustomize/api").Output()
	if err != nil {
		return err
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "internal/konfig/builtinpluginconsts")
	packages, err := parser.ParseDir(token.NewFileSet(), folder, nil, 0)
	if err != nil {
		return err
	}
	constants := map[string]ast.Expr{}
	for _, p := range packages {
		for _, file := range p.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
					constants[v.Names[0].Name] = v.Values[0]
				}
				return true
			})
		}
	}
	var text func(e ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, _ := strconv.Unquote(e.Value)
			return s
		case *ast.Ident:
			return text(constants[e.Name])
		case *ast.BinaryExpr:
			return text(e.X) + text(e.Y)
		}
		return ""
	}
	var lines []string
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	spec := func(list string, f fieldSpec) string {
		return fmt.Sprintf("%s %s %s %s %t %s", list, dash(f.Group), dash(f.Version), dash(f.Kind), f.Create, f.Path)
	}
	for _, name := range []string{"namePrefix", "nameSuffix", "commonLabel", "templateLabel", "commonAnnotation",
		"namespace", "varReference", "images", "replicas"} {
		lists := map[string][]fieldSpec{}
		if err := yaml.Unmarshal([]byte(text(constants[name+"FieldSpecs"])), &lists); err != nil {
			return err
		}
		for list, specs := range lists {
			for _, f := range specs {
				lines = append(lines, spec(list, f))
			}
		}
	}
	var references struct {
		NameReference []backReference `yaml:"nameReference"`
	}
	if err := yaml.Unmarshal([]byte(text(constants["nameReferenceFieldSpecs"])), &references); err != nil {
		return err
	}
	for _, r := range references.NameReference {
		for _, f := range r.FieldSpecs {
			lines = append(lines, fmt.Sprintf("%s %s %s %s", "nameReference", dash(r.Group), dash(r.Version), spec(dash(r.Kind), f)))
		}
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

const (
	strategyKey = "x-kubernetes-patch-strategy"
	mergeKey    = "x-kubernetes-patch-merge-key"
	listKeys    = "x-kubernetes-list-map-keys"
	gvkKey      = "x-kubernetes-group-version-kind"
)

func writeTypes(dir string) error {
	root := openapi.Schema()
	raw, err := root.MarshalJSON()
	if err != nil {
		return err
	}
	var swagger struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(raw, &swagger); err != nil {
		return err
	}
	// reduce keeps what leads to a list that is merged.
	reaches := map[string]bool{}
	var leads func(schema map[string]any) bool
	leads = func(schema map[string]any) bool {
		if s, _ := schema[strategyKey].(string); strings.Contains(s, "merge") {
			return true
		}
		if ref, ok := schema["$ref"].(string); ok {
			return reaches[strings.TrimPrefix(ref, "#/definitions/")]
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if inner, ok := schema[key].(map[string]any); ok && leads(inner) {
				return true
			}
		}
		if properties, ok := schema["properties"].(map[string]any); ok {
			for _, p := range properties {
				if leads(p.(map[string]any)) {
					return true
				}
			}
		}
		return false
	}
	for again := true; again; {
		again = false
		for name, d := range swagger.Definitions {
			if !reaches[name] && leads(d) {
				reaches[name], again = true, true
			}
		}
	}
	short := func(name string) string {
		parts := strings.Split(name, ".")
		return strings.Join(parts[max(0, len(parts)-3):], ".")
	}
	taken := map[string]string{}
	for name := range reaches {
		if other, ok := taken[short(name)]; ok {
			return fmt.Errorf("%s and %s", other, name)
		}
		taken[short(name)] = name
	}
	var reduce func(schema map[string]any) map[string]any
	reduce = func(schema map[string]any) map[string]any {
		out := map[string]any{}
		for _, key := range []string{strategyKey, mergeKey, listKeys, gvkKey, "type"} {
			if v, ok := schema[key]; ok && (key != "type" || v == "array") {
				out[key] = v
			}
		}
		if ref, ok := schema["$ref"].(string); ok {
			if name := strings.TrimPrefix(ref, "#/definitions/"); reaches[name] {
				out["$ref"] = "#/definitions/" + short(name)
			}
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if inner, ok := schema[key].(map[string]any); ok {
				out[key] = reduce(inner)
			}
		}
		if properties, ok := schema["properties"].(map[string]any); ok {
			kept := map[string]any{}
			for name, p := range properties {
				if p := p.(map[string]any); leads(p) {
					kept[name] = reduce(p)
				}
			}
			if len(kept) > 0 {
				out["properties"] = kept
			}
		}
		return out
	}
	definitions := map[string]any{}
	kinds := map[string]bool{}
	for name, d := range swagger.Definitions {
		if reaches[name] {
			definitions[short(name)] = reduce(d)
		}
		gvks, _ := d[gvkKey].([]any)
		for _, g := range gvks {
			g := g.(map[string]any)
			version, _ := g["version"].(string)
			if group, _ := g["group"].(string); group != "" {
				version = group + "/" + version
			}
			kind, _ := g["kind"].(string)
			kinds[version+" "+kind] = true
		}
	}
	var scopes []string
	for line := range kinds {
		version, kind, _ := strings.Cut(line, " ")
		namespaced, known := openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: version, Kind: kind})
		switch {
		case known && namespaced:
			scopes = append(scopes, line+" namespace")
		case known:
			scopes = append(scopes, line+" cluster")
		}
	}
	sort.Strings(scopes)
	if err := os.WriteFile(filepath.Join(dir, "scopes.txt"), []byte(strings.Join(scopes, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"definitions": definitions})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "types.json"), append(text, '\n'), 0o644)
}
