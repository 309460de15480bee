// Answers what the real Go libraries make of templates and texts: the other side of the differential run.
//
// Requests and answers are JSON objects on stdin and stdout, each after its length as four bytes, big endian. Every
// request is worked on twice; where the answers differ (Go's maps have no order) the answer is "unstable". What takes
// longer than five seconds is "endless", and ends the program.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"text/template"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/Masterminds/semver/v3"
	"github.com/Masterminds/sprig/v3"
	"github.com/gobwas/glob"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

type request struct {
	Kind     string          `json:"kind"`
	Dialect  string          `json:"dialect"`
	Template string          `json:"template"`
	Others   [][2]string     `json:"others"`
	Data     json.RawMessage `json:"data"`
	Text     string          `json:"text"`
	Names    []string        `json:"names"`
}

type answer struct {
	Output   []byte `json:"output"`
	Error    []byte `json:"error,omitempty"`
	Failed   bool   `json:"failed"`
	Unstable bool   `json:"unstable,omitempty"`
	Endless  bool   `json:"endless,omitempty"`
}

//go:linkname initFunMap helm.sh/helm/v4/pkg/engine.Engine.initFunMap
func initFunMap(e engine.Engine, ctx context.Context, t *template.Template)

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var length [4]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		done := make(chan answer, 1)
		go func() { done <- work(body) }()
		var result answer
		select {
		case result = <-done:
		case <-time.After(5 * time.Second):
			result = answer{Endless: true}
		}
		reply, err := json.Marshal(result)
		if err != nil {
			panic(err)
		}
		binary.BigEndian.PutUint32(length[:], uint32(len(reply)))
		out.Write(length[:])
		out.Write(reply)
		out.Flush()
		if result.Endless {
			return
		}
	}
}

func work(body []byte) answer {
	first, second := once(body), once(body)
	if !bytes.Equal(first.Output, second.Output) || !bytes.Equal(first.Error, second.Error) {
		return answer{Unstable: true}
	}
	return first
}

func once(body []byte) (result answer) {
	defer func() {
		if r := recover(); r != nil {
			result = answer{Error: fmt.Appendf(nil, "panic: %v", r), Failed: true}
		}
	}()
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return answer{Error: []byte("request: " + err.Error()), Failed: true}
	}
	output, err := answerTo(r)
	if err != nil {
		return answer{Error: []byte(err.Error()), Failed: true}
	}
	return answer{Output: []byte(output)}
}

func answerTo(r request) (string, error) {
	switch r.Kind {
	case "template":
		return render(r)
	case "chart":
		return renderChart(r)
	case "yaml":
		var value any
		if err := yaml.Unmarshal([]byte(r.Text), &value); err != nil {
			return "", err
		}
		return encoded(value)
	case "yaml_strict":
		var value any
		if err := yaml.UnmarshalStrict([]byte(r.Text), &value); err != nil {
			return "", err
		}
		return encoded(value)
	case "yaml_write":
		var value any
		if err := json.Unmarshal(r.Data, &value); err != nil {
			return "", err
		}
		text, err := yaml.Marshal(value)
		return string(text), err
	case "glob":
		g, err := glob.Compile(r.Text, '/')
		if err != nil {
			return "", err
		}
		var found []bool
		for _, name := range r.Names {
			found = append(found, g.Match(name))
		}
		return encoded(found)
	case "match":
		var found []bool
		for _, name := range r.Names {
			ok, err := path.Match(r.Text, name)
			if err != nil {
				return "", err
			}
			found = append(found, ok)
		}
		return encoded(found)
	case "semver":
		return versions(r)
	}
	return "", errors.New("no such kind: " + r.Kind)
}

func encoded(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

func render(r request) (string, error) {
	t := template.New("t")
	switch r.Dialect {
	case "helm":
		t.Option("missingkey=zero")
		initFunMap(engine.Engine{}, context.Background(), t)
	case "fleet":
		functions := sprig.TxtFuncMap()
		for _, name := range []string{"env", "expandenv", "include", "tpl", "getHostByName"} {
			delete(functions, name)
		}
		t.Delims("${", "}").Option("missingkey=error").Funcs(functions)
	}
	var data map[string]any
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return "", err
	}
	for _, other := range r.Others {
		if _, err := t.New(other[0]).Parse(other[1]); err != nil {
			return "", err
		}
	}
	if _, err := t.Parse(r.Template); err != nil {
		return "", err
	}
	var out strings.Builder
	err := t.Execute(&out, data)
	return out.String(), err
}

// renderChart puts the templates into a chart and hands it to Helm's engine, which has its own words for errors.
func renderChart(r request) (string, error) {
	var data map[string]any
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return "", err
	}
	c := &chart.Chart{Metadata: &chart.Metadata{Name: "c", Version: "0.1.0", APIVersion: "v2"}}
	for i, other := range r.Others {
		text := fmt.Sprintf("{{ define %q }}%s{{ end }}", other[0], other[1])
		c.Templates = append(c.Templates, &common.File{Name: fmt.Sprintf("templates/_%d.tpl", i), Data: []byte(text)})
	}
	c.Templates = append(c.Templates,
		&common.File{Name: "templates/_t.tpl", Data: []byte(r.Template)},
		&common.File{Name: "templates/m.yaml", Data: []byte(r.Text)})
	c.Files = append(c.Files, &common.File{Name: "t", Data: []byte(r.Template)})
	options := common.ReleaseOptions{Name: "rel", Namespace: "ns", IsInstall: true, Revision: 1}
	values, err := util.ToRenderValues(c, data, options, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, values)
	if err != nil {
		return "", err
	}
	for name, text := range files {
		files[name] = string([]rune(text)) // bytes that are not UTF-8 as JSON has them
	}
	return encoded(files)
}

func versions(r request) (string, error) {
	constraint, err := semver.NewConstraint(r.Text)
	if err != nil {
		return "", err
	}
	lines := []string{constraint.String()}
	for _, name := range r.Names {
		version, err := semver.NewVersion(name)
		if err != nil {
			lines = append(lines, err.Error())
			continue
		}
		_, strictErr := semver.StrictNewVersion(name)
		ok, problems := constraint.Validate(version)
		line := fmt.Sprintf("%s %v %v", version, constraint.Check(version), ok)
		for _, problem := range append(problems, strictErr) {
			if problem != nil {
				line += "; " + problem.Error()
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}
