// Orders in which Helm has the versions of a repository's index, and the tags of a registry's.
//
// Usage:
//
//	go run . > ../../../chart/tests/source/order.txt
//
// A line is the kind of list and the versions as they come; the next one has them as they are sorted. Of equal precedence are versions
// that differ in their build metadata alone; which of them is first depends on Go's sort.Sort.
package main

import (
	"fmt"
	"math/rand"
	"sort"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// versions is sorted as Helm's ChartVersions are (pkg/repo/v1/index.go).
type versions []string

func (v versions) Len() int      { return len(v) }
func (v versions) Swap(i, j int) { v[i], v[j] = v[j], v[i] }
func (v versions) Less(a, b int) bool {
	i, err := semver.NewVersion(v[a])
	if err != nil {
		return true
	}
	j, err := semver.NewVersion(v[b])
	if err != nil {
		return false
	}
	return i.LessThan(j)
}

func show(kind string, list []string) {
	fmt.Println(kind, strings.Join(list, " "))
	if kind == "index" {
		sort.Sort(sort.Reverse(versions(list)))
		fmt.Println(strings.Join(list, " "))
		return
	}
	// As the registry's client does it (pkg/registry/client.go, Tags).
	var tags []*semver.Version
	for _, tag := range list {
		if version, err := semver.StrictNewVersion(strings.ReplaceAll(tag, "_", "+")); err == nil {
			tags = append(tags, version)
		}
	}
	sort.Sort(sort.Reverse(semver.Collection(tags)))
	var sorted []string
	for _, tag := range tags {
		sorted = append(sorted, tag.String())
	}
	fmt.Println(strings.Join(sorted, " "))
}

func main() {
	random := rand.New(rand.NewSource(1))
	for _, length := range []int{2, 5, 12, 13, 14, 16, 20, 51, 130} {
		var ascending, mixed, broken []string
		for at := 0; at < length-2; at++ {
			ascending = append(ascending, fmt.Sprintf("1.%d.0", at))
			mixed = append(mixed, fmt.Sprintf("1.%d.0+up%d", random.Intn(4), at))
			broken = append(broken, fmt.Sprintf([]string{"1.%d.0", "v1.%d+b", "x%d"}[random.Intn(3)], at))
		}
		last := fmt.Sprintf("1.%d.0", length)
		ascending = append(ascending, last+"+up1", last+"+up2")
		mixed, broken = append(mixed, last, last+"+up"), append(broken, last, last+"+up")
		for _, list := range [][]string{ascending, mixed} {
			show("index", append([]string(nil), list...))
			for at, one := range list {
				list[at] = strings.ReplaceAll(one, "+", "_")
			}
			show("tags", list)
		}
		show("index", broken)
	}
}
