package table

import (
	"slices"
	"strings"
	"testing"

	"smartswap/formats/notes"
)

// Columns are found by either name, quoted line breaks stay in their cell, and
// lines are counted through them.
func TestColumns(t *testing.T) {
	text := "\ufeffNew,Stack,Value,Rest\na,\"one\ntwo\",1.5\t,\nb,,N/A,\nc\nd,,2,3,4\ne,f,1\n"
	var list notes.List
	r, err := New(strings.NewReader(text), "f", &list, []Column{{Names: []string{"Old", "New"}, Required: true}, {Names: []string{"Value"}}, {Names: []string{"None"}}})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		name  string
		value int64
		ok    bool
		line  int
	}
	var got []row
	for {
		more, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		v, ok, err := r.Number(1, 10)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, row{r.Text(0), v, ok, r.Line()})
	}
	want := []row{{"a", 15, true, 2}, {"b", 0, false, 4}, {"d", 20, true, 6}, {"e", 0, false, 7}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if r.Has(2) || !r.Has(1) || r.Text(2) != "" {
		t.Error("absent column")
	}
	if n := list.All(); len(n) != 4 || n[1].String() != "f:5: skipped: row with fewer fields than the header" {
		t.Errorf("%v", n)
	}
}
