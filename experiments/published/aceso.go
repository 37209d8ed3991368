package published

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mib is the unit of sizes in the tables.
const mib = 1 << 20

var measuredForm = regexp.MustCompile(`^(.+)_stage(\d{1,4})_rank(\d{1,4})\.csv$`)

// Aceso reads the folder that Mist publishes of the Aceso planner: plans/NAME.json, the
// profiles beside them, and measured/NAME_stageS_rankR.csv, a line of times in ms
// and sizes in MB. One job per plan, a plan without measurements left out; times are
// those of kernels profiled one by one, run as a pipeline. Forward and backward
// compute are sums over micro-batches, by device of a stage.
func Aceso(dir string) ([]Job, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "measured"))
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for _, e := range entries { // sorted by name
		m := measuredForm.FindStringSubmatch(e.Name())
		if m == nil {
			return nil, fmt.Errorf("%s: want names such as PLAN_stage0_rank0.csv", filepath.Join(dir, "measured", e.Name()))
		}
		stage, _ := strconv.Atoi(m[2])
		at := slices.IndexFunc(jobs, func(j Job) bool { return j.ID == m[1] })
		if at < 0 {
			at = len(jobs)
			path := filepath.Join(dir, "plans", m[1]+".json")
			if _, err := os.Stat(path); err != nil {
				return nil, err
			}
			if path, err = filepath.Abs(path); err != nil {
				return nil, err
			}
			name, _, _ := strings.Cut(m[1], "stages")
			jobs = append(jobs, Job{ID: m[1], Trace: path, Source: "Dazz993/Mist benchmark/superscaler/results-ref/measured",
				Note: "measured kernels, run as a pipeline"})
			jobs[at].Model.Name = strings.Trim(name[:strings.LastIndexByte(name, '_')+1], "_")
		}
		if err := measured(&jobs[at], filepath.Join(dir, "measured", e.Name()), stage, "stage "+m[2]+" rank "+m[3]); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// measured adds the numbers of one device. The step time is that of the whole job and
// is taken from the first.
func measured(j *Job, path string, stage int, where string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	s, err := readSheet(in, path, []string{"time", "forward-compute", "backward-compute", "max_allocated"})
	if err != nil {
		return err
	}
	if len(s.rows) != 1 {
		return fmt.Errorf("%s: %d lines after the header: want one", path, len(s.rows))
	}
	r := &row{sheet: s}
	step := Number{Metric: StepTime, Value: r.positive("time")}
	first := len(j.Numbers) == 0
	j.Numbers = append(j.Numbers,
		Number{Forward, stage, where, r.positive("forward-compute")},
		Number{Backward, stage, where, r.positive("backward-compute")},
		Number{Allocated, stage, where, mib * r.positive("max_allocated")})
	if first {
		j.Numbers = append(j.Numbers, step)
	}
	return r.err
}
