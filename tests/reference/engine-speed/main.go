// Measures Helm's engine and Go's text/template on the charts that `make bench` hands it, for the figures beside ours.
//
// Usage: engine-speed CHART_DIRECTORY...
//
// One line per chart and operation: `<chart> <operation> <ns/op> <bytes/op> <allocations/op>`, where the operation is
// parse (all templates into one set), execute (all templates of such a set) or render (Helm's engine: both). Times are
// of processors, the garbage collector's included.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	log.SetFlags(0)
	for _, dir := range os.Args[1:] {
		if err := measure(dir); err != nil {
			log.Fatalf("engine-speed: %s: %v", dir, err)
		}
	}
}

func measure(dir string) error {
	chrt, err := loader.Load(dir)
	if err != nil {
		return err
	}
	options := common.ReleaseOptions{Name: "rel", Namespace: "ns", IsInstall: true, Revision: 1}
	values, err := util.ToRenderValues(chrt, map[string]any{}, options, nil)
	if err != nil {
		return err
	}
	set, err := parse(chrt)
	if err != nil {
		return err
	}
	if err := execute(set, chrt, values); err != nil {
		return err
	}
	err = report(dir, "parse", func() error {
		_, err := parse(chrt)
		return err
	})
	if err != nil {
		return err
	}
	if err := report(dir, "execute", func() error { return execute(set, chrt, values) }); err != nil {
		return err
	}
	return report(dir, "render", func() error {
		_, err := engine.Render(chrt, values)
		return err
	})
}

// used is the processor time of this process.
func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// report repeats the work for a while and prints the means.
func report(dir, operation string, work func() error) error {
	const enough = 300 * time.Millisecond
	if err := work(); err != nil {
		return err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	started := used()
	runs := 0
	for used()-started < enough {
		if err := work(); err != nil {
			return err
		}
		runs++
	}
	took := used() - started
	runtime.ReadMemStats(&after)
	per := func(total uint64) uint64 { return total / uint64(runs) }
	fmt.Println(filepath.Base(dir), operation, per(uint64(took)), per(after.TotalAlloc-before.TotalAlloc), per(after.Mallocs-before.Mallocs))
	return nil
}

func fullName(chrt *chart.Chart, file *common.File) string { return chrt.Name() + "/" + file.Name }

// parse puts all templates into one set, backwards by name, as Helm's engine does.
func parse(chrt *chart.Chart) (*template.Template, error) {
	set := template.New("gotpl").Option("missingkey=zero")
	set.Funcs(functions(set))
	files := append([]*common.File{}, chrt.Templates...)
	sort.Slice(files, func(i, j int) bool { return files[i].Name > files[j].Name })
	for _, file := range files {
		if _, err := set.New(fullName(chrt, file)).Parse(string(file.Data)); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// execute renders every template but the partials.
func execute(set *template.Template, chrt *chart.Chart, values common.Values) error {
	for _, file := range chrt.Templates {
		if strings.HasPrefix(filepath.Base(file.Name), "_") {
			continue
		}
		dot := map[string]any{}
		for key, value := range values {
			dot[key] = value
		}
		dot["Template"] = map[string]any{"Name": fullName(chrt, file), "BasePath": chrt.Name() + "/templates"}
		var out strings.Builder
		if err := set.ExecuteTemplate(&out, fullName(chrt, file), dot); err != nil {
			return err
		}
		_ = strings.ReplaceAll(out.String(), "<no value>", "")
	}
	return nil
}

// functions is the part of Helm's function map that the measured charts use beyond Sprig.
func functions(set *template.Template) template.FuncMap {
	funcs := sprig.TxtFuncMap()
	funcs["include"] = func(name string, data any) (string, error) {
		var out strings.Builder
		err := set.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	funcs["toYaml"] = func(value any) string {
		data, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return string(bytes.TrimSuffix(data, []byte("\n")))
	}
	funcs["toJson"] = func(value any) string {
		data, err := json.Marshal(value)
		if err != nil {
			return ""
		}
		return string(data)
	}
	funcs["required"] = func(message string, value any) (any, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	return funcs
}
