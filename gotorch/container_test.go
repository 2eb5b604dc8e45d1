package gotorch_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
)

// control is a made-up /proc and /sys.
type control struct {
	t    *testing.T
	root string
}

func (c control) write(path, text string) {
	c.t.Helper()
	path = filepath.Join(c.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o666); err != nil {
		c.t.Fatal(err)
	}
}

// TestTheLeastQuotaOfTheGroupsHolds makes groups of both versions, mounted whole or in part as container runtimes do it.
func TestTheLeastQuotaOfTheGroupsHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		c := control{t, t.TempDir()}
		v2 := random.IntN(2) == 0
		var names []string
		for range random.IntN(4) {
			names = append(names, []string{"kubepods", "a b", "docker", "x.slice", "überall"}[random.IntN(5)])
		}
		path := "/" + strings.Join(names, "/")
		seen := random.IntN(len(names) + 1) // of the groups around the process, those that are mounted begin here
		mounted := "/" + strings.Join(names[:seen], "/")
		inside := names[seen:]
		nested := random.IntN(4) == 0
		if nested { // a namespace: the process is at the top of what it sees
			path, mounted = "/", "/"
			inside = nil
		}
		escape := strings.NewReplacer(" ", `\040`).Replace
		cpu, memory := "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory"
		if v2 {
			cpu, memory = "/sys/fs/cgroup", "/sys/fs/cgroup"
			c.write("proc/self/cgroup", "0::"+path)
			c.write("proc/self/mountinfo", "21 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 "+escape(mounted)+" /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate")
		} else {
			c.write("proc/self/cgroup", "9:name=systemd:/\n5:memory:"+path+"\n2:cpu,cpuacct:"+path+"\n0::/")
			c.write("proc/self/mountinfo", "30 23 0:26 "+escape(mounted)+" "+cpu+" rw - cgroup cgroup rw,cpu,cpuacct\n31 23 0:27 "+
				escape(mounted)+" "+memory+" rw shared:1 master:2 - cgroup cgroup rw,memory\n32 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset")
		}
		var least float64
		var limit int64
		for depth := range len(inside) + 1 {
			at := strings.Join(inside[:depth], "/")
			if random.IntN(2) == 0 {
				period := []int{100_000, 50_000}[random.IntN(2)]
				quota := 1000 * (1 + random.IntN(800))
				if n := float64(quota) / float64(period); least == 0 || n < least {
					least = n
				}
				if v2 {
					c.write(filepath.Join(cpu, at, "cpu.max"), fmt.Sprint(quota, " ", period))
				} else {
					c.write(filepath.Join(cpu, at, "cpu.cfs_quota_us"), fmt.Sprint(quota))
					c.write(filepath.Join(cpu, at, "cpu.cfs_period_us"), fmt.Sprint(period))
				}
			} else if v2 {
				c.write(filepath.Join(cpu, at, "cpu.max"), "max 100000")
			} else {
				c.write(filepath.Join(cpu, at, "cpu.cfs_quota_us"), "-1")
				c.write(filepath.Join(cpu, at, "cpu.cfs_period_us"), "100000")
			}
			file := map[bool]string{true: "memory.max", false: "memory.limit_in_bytes"}[v2]
			none := map[bool]string{true: "max", false: "9223372036854771712"}[v2]
			if random.IntN(2) == 0 {
				n := int64(4096 * (1 + random.IntN(1<<24)))
				if limit == 0 || n < limit {
					limit = n
				}
				none = fmt.Sprint(n)
			}
			c.write(filepath.Join(memory, at, file), none)
		}
		if quota := ctorch.CPUQuota(c.root); quota != least {
			t.Errorf("case %d, v2 %v, %q below %q: a quota of %v, expected %v", i, v2, path, mounted, quota, least)
		}
		if got := ctorch.MemoryLimit(c.root); got != limit {
			t.Errorf("case %d, v2 %v, %q below %q: %d bytes, expected %d", i, v2, path, mounted, got, limit)
		}
	}
	for _, text := range []string{"", "\n\n", "0:", "0::", "x", strings.Repeat("a:b:c\n", 1000), "30 23 0:26 / /sys - cgroup2", "\x00"} {
		c := control{t, t.TempDir()}
		c.write("proc/self/cgroup", text)
		c.write("proc/self/mountinfo", text)
		if ctorch.CPUQuota(c.root) != 0 || ctorch.MemoryLimit(c.root) != 0 {
			t.Errorf("%.40q limits", text)
		}
	}
	if ctorch.CPUQuota("/nowhere") != 0 {
		t.Error("no files limit")
	}
}

func TestThreadsFollowTheQuota(t *testing.T) {
	for quota, want := range map[float64]int{0.1: 1, 0.5: 1, 1: 1, 1.5: 1, 1.99: 1, 2: 2, 3.7: 3, 64: 64} {
		if n := gotorch.ThreadsOf(quota); n != want {
			t.Errorf("a quota of %v is for %d threads, expected %d", quota, n, want)
		}
	}
	// In a process of its own, as the number is of the process.
	if os.Getenv("GOTORCH_TEST_LIMIT") == "" {
		for env, before := range map[string]int{"X=1": gotorch.NumThreads(), "OMP_NUM_THREADS=1": 1} {
			program := exec.Command(os.Args[0], "-test.run=^TestThreadsFollowTheQuota$", "-test.v")
			program.Env = append(os.Environ(), "GOTORCH_TEST_LIMIT=1", env)
			out, err := program.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if want := fmt.Sprintf("threads: %d 1 3\n", before); !strings.Contains(string(out), want) {
				t.Errorf("%s: expected %s:\n%s", env, want, out)
			}
		}
		return
	}
	before := gotorch.NumThreads()
	gotorch.LimitThreads(1)
	limited := make(chan int)
	go func() { limited <- gotorch.NumThreads() }()
	if a, b := gotorch.NumThreads(), <-limited; a != b {
		t.Errorf("%d and %d threads", a, b)
	}
	x := gotorch.Rand([]int64{200, 200})
	x.MM(x)
	now := gotorch.NumThreads()
	gotorch.SetNumThreads(3)
	fmt.Printf("threads: %d %d %d\n", before, now, gotorch.NumThreads())
}
