package profilers

// Detection is how well changes of the operator sequence were noticed in a run.
type Detection struct {
	Changes     int // iterations that ran another program than the one before
	Detected    int // of them, by an alarm before the next change
	Missed      int // of them, by none
	FalseAlarms int // alarms beyond the first for a change, or before any
	Latency     int // iterations from change to alarm, summed over Detected; 0 = at the end of the changed iteration
}

// Score holds alarms against the truth. kinds names the program of each
// iteration; alarms are the iterations at whose ends a change was reported, in
// order. A change can be noticed until the next one comes.
func Score(kinds []string, alarms []int) Detection {
	var d Detection
	next := 0 // alarm
	falseUntil := func(iteration int) {
		for ; next < len(alarms) && alarms[next] < iteration; next++ {
			d.FalseAlarms++
		}
	}
	changed := func(i int) bool { return i < len(kinds) && kinds[i] != kinds[i-1] }
	for i := 1; i < len(kinds); i++ {
		if !changed(i) {
			continue
		}
		falseUntil(i)
		d.Changes++
		end := i + 1
		for end < len(kinds) && !changed(end) {
			end++
		}
		if next < len(alarms) && alarms[next] < end {
			d.Detected++
			d.Latency += alarms[next] - i
			next++
		} else {
			d.Missed++
		}
	}
	falseUntil(len(kinds))
	return d
}
