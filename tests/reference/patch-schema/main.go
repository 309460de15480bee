// Prints what strategic merge has to know of Kubernetes' built-in types: for each kind of
// client-go's scheme and apiextensions v1 its fields, their shapes, patch strategies and merge keys.
//
// Usage: go run . > ../../../objects/src/merge/builtin_types.txt
//
// Lines: `K <apiVersion> <kind> <type number>` and `T <type number> <Go name> <field>...` with fields
// `<json name>=<shape>[,<strategy>[,<merge key>]]`; several strategies are joined by `+`.
// Shapes: s string, b bool, i integer, f float, y bytes, a any; t Time, m MicroTime, d Duration,
// q Quantity, x IntOrString, c another type with its own JSON form; `*` pointer, `[` list,
// `{` map, `#n` struct n, `!n` struct n with its own JSON form.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

type table struct {
	numbers map[reflect.Type]int
	lines   []string
}

func (t *table) structNumber(s reflect.Type) int {
	if number, ok := t.numbers[s]; ok {
		return number
	}
	number := len(t.lines)
	t.numbers[s] = number
	t.lines = append(t.lines, "")
	t.lines[number] = fmt.Sprintf("T %d %s%s", number, s.Name(), t.fields(s))
	return number
}

func (t *table) fields(s reflect.Type) string {
	var out strings.Builder
	for i := range s.NumField() {
		field := s.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" && field.Anonymous {
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				out.WriteString(t.fields(embedded))
				continue
			}
		}
		if !field.IsExported() {
			continue
		}
		if name == "" {
			name = field.Name
		}
		fmt.Fprintf(&out, " %s=%s", name, t.shape(field.Type))
		strategy := strings.ReplaceAll(field.Tag.Get("patchStrategy"), ",", "+")
		key := field.Tag.Get("patchMergeKey")
		if strategy != "" || key != "" {
			fmt.Fprintf(&out, ",%s", strategy)
		}
		if key != "" {
			fmt.Fprintf(&out, ",%s", key)
		}
	}
	return out.String()
}

func (t *table) shape(f reflect.Type) string {
	switch f {
	case reflect.TypeOf(metav1.Time{}):
		return "t"
	case reflect.TypeOf(metav1.MicroTime{}):
		return "m"
	case reflect.TypeOf(metav1.Duration{}):
		return "d"
	case reflect.TypeOf(resource.Quantity{}):
		return "q"
	case reflect.TypeOf(intstr.IntOrString{}):
		return "x"
	}
	isCustom := reflect.PointerTo(f).Implements(unmarshaler)
	switch f.Kind() {
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "i"
	case reflect.Float32, reflect.Float64:
		return "f"
	case reflect.Interface:
		return "a"
	case reflect.Pointer:
		return "*" + t.shape(f.Elem())
	case reflect.Slice, reflect.Array:
		if isCustom {
			return "c"
		}
		if f.Elem().Kind() == reflect.Uint8 {
			return "y"
		}
		return "[" + t.shape(f.Elem())
	case reflect.Map:
		return "{" + t.shape(f.Elem())
	case reflect.Struct:
		if isCustom {
			return fmt.Sprintf("!%d", t.structNumber(f))
		}
		return fmt.Sprintf("#%d", t.structNumber(f))
	}
	panic("no shape for " + f.String())
}

func main() {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextv1.AddToScheme} {
		if err := add(types); err != nil {
			panic(err)
		}
	}
	known := types.AllKnownTypes()
	kinds := make([]schema.GroupVersionKind, 0, len(known))
	for kind, goType := range known {
		_, hasMetadata := goType.FieldByName("ObjectMeta")
		isMeta := kind.Version == "__internal" || goType.PkgPath() == "k8s.io/apimachinery/pkg/apis/meta/v1"
		if hasMetadata && !isMeta {
			kinds = append(kinds, kind)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })

	t := table{numbers: map[reflect.Type]int{}}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, kind := range kinds {
		fmt.Fprintf(out, "K %s %s %d\n", kind.GroupVersion(), kind.Kind, t.structNumber(known[kind]))
	}
	for _, line := range t.lines {
		fmt.Fprintln(out, line)
	}
}
