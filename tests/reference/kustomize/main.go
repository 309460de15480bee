// Answers of the real kustomize, of the version that Fleet v0.16 is built with.
//
// Usage:
//
//	go run . tables ../../../kustomize/src/tables   the default field specs and what patches know of Kubernetes' types
//	go run . record ../../../kustomize/tests/cases  writes into each case file what kustomize makes of it
//	go run . build DIR...                           builds directories one after the other, for comparison
//	go run . answer                                 builds what comes in on standard input, a case of JSON a line, and answers likewise
//
// A case file begins with the directory to build and its files, each behind a line `-- path --`; what is recorded follows a
// line `== output ==` or `== error ==`. A second line `sort: fifo` on top builds as Fleet does, without sorting.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/yaml"
)

func main() {
	log.SetOutput(io.Discard)
	if len(os.Args) == 2 && os.Args[1] == "answer" {
		answerAll()
		return
	}
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: tables DIR | record DIR | build DIR... | answer")
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "tables":
		err = writeTables(os.Args[2])
	case "record":
		err = recordAll(os.Args[2])
	case "build":
		buildAll(os.Args[2:])
	default:
		err = fmt.Errorf("unknown command %s", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are Fleet's, which names no order, or those of the command line.
func options(sorted bool) *krusty.Options {
	o := &krusty.Options{
		LoadRestrictions: types.LoadRestrictionsRootOnly,
		PluginConfig:     types.DisabledPluginConfig(),
	}
	if sorted {
		o.Reorder = krusty.ReorderOptionUnspecified
	}
	return o
}

func build(fs filesys.FileSystem, dir string, sorted bool) (string, error) {
	openapi.ResetOpenAPI()
	return written(fs, dir, sorted, resmap.ResMap.AsYaml)
}

func written(fs filesys.FileSystem, dir string, sorted bool, write func(resmap.ResMap) ([]byte, error)) (out string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("PANIC: %v", r)
		}
	}()
	m, err := krusty.MakeKustomizer(options(sorted)).Run(fs, dir)
	if err != nil {
		return "", err
	}
	y, err := write(m)
	return string(y), err
}

// asFleet is how Fleet takes objects out of a build: not by way of their text.
func asFleet(m resmap.ResMap) ([]byte, error) {
	var out bytes.Buffer
	for i, r := range m.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// A question is a directory to build, and how; an answer what it prints or the error.
type question struct {
	Dir     string            `json:"dir"`
	AsFleet bool              `json:"asFleet"`
	Files   map[string]string `json:"files"`
}

type answer struct {
	Output string `json:"output"`
	Error  string `json:"error"`
}

func answerAll() {
	os.Stderr, _ = os.Open(os.DevNull)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	changed := false
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		// Reading Kubernetes' types takes most of the time, so they are read again only where a build may have others.
		own := hasTypes(q)
		if own || changed {
			openapi.ResetOpenAPI()
		}
		changed = own
		fs := filesys.MakeFsInMemory()
		var a answer
		for name, content := range q.Files {
			if err := fs.WriteFile(name, []byte(content)); err != nil {
				a.Error = err.Error()
			}
		}
		write := resmap.ResMap.AsYaml
		if q.AsFleet {
			write = asFleet
		}
		text, err := written(fs, q.Dir, !q.AsFleet, write)
		a.Output = text
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := out.Encode(a); err != nil {
			return
		}
	}
}

// hasTypes is whether a file may bring types of its own.
func hasTypes(q question) bool {
	for _, content := range q.Files {
		if strings.Contains(strings.ToLower(content), "openapi") {
			return true
		}
	}
	return false
}

type caseFile struct {
	head  string
	dir   string
	fifo  bool
	files [][2]string
}

func parseCase(text string) caseFile {
	var c caseFile
	for _, mark := range []string{"\n== output ==\n", "\n== error ==\n"} {
		if i := strings.Index(text, mark); i >= 0 {
			text = text[:i+1]
		}
	}
	c.head = text
	c.dir = "."
	name := ""
	var body []string
	flush := func() {
		if name != "" {
			content := strings.Join(body, "")
			c.files = append(c.files, [2]string{name, content})
		}
		body = nil
	}
	for _, line := range strings.SplitAfter(text, "\n") {
		trimmed := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(trimmed, "-- ") && strings.HasSuffix(trimmed, " --"):
			flush()
			name = strings.TrimSuffix(strings.TrimPrefix(trimmed, "-- "), " --")
		case name == "" && strings.HasPrefix(trimmed, "build "):
			c.dir = strings.TrimPrefix(trimmed, "build ")
		case name == "" && trimmed == "sort: fifo":
			c.fifo = true
		case name != "":
			body = append(body, line)
		}
	}
	flush()
	return c
}

func recordAll(root string) error {
	// What only warns goes to standard error, and nobody compares it.
	os.Stderr, _ = os.Open(os.DevNull)
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".txt") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c := parseCase(string(text))
		fs := filesys.MakeFsInMemory()
		for _, f := range c.files {
			content := f[1]
			if raw, ok := strings.CutPrefix(content, "%bytes "); ok {
				content = unescape(strings.TrimSuffix(raw, "\n"))
			}
			if err := fs.WriteFile(f[0], []byte(content)); err != nil {
				return err
			}
		}
		out, berr := build(fs, c.dir, !c.fifo)
		var b bytes.Buffer
		b.WriteString(c.head)
		if berr != nil {
			fmt.Fprintf(&b, "== error ==\n%s\n", berr)
		} else {
			fmt.Fprintf(&b, "== output ==\n%s", out)
		}
		return os.WriteFile(path, b.Bytes(), 0o644)
	})
}

// unescape reads `\xNN`, `\n` and `\\`.
func unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			out = append(out, '\n')
		case 'x':
			var v byte
			fmt.Sscanf(s[i+1:i+3], "%02x", &v)
			out = append(out, v)
			i += 2
		default:
			out = append(out, s[i])
		}
	}
	return string(out)
}

// buildAll writes for each directory `DIR\t(ok|error)\t<length>\n<text>\n`.
func buildAll(dirs []string) {
	if len(dirs) == 1 && dirs[0] == "-" {
		in, _ := io.ReadAll(os.Stdin)
		dirs = strings.Fields(string(in))
	}
	os.Stderr, _ = os.Open(os.DevNull)
	fs := filesys.MakeFsOnDisk()
	for _, dir := range dirs {
		out, err := build(fs, dir, true)
		state := "ok"
		if err != nil {
			state, out = "error", err.Error()
		}
		fmt.Printf("%s\t%s\t%d\n%s\n", dir, state, len(out), out)
	}
}
