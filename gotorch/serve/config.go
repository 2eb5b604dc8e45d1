package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// config.json of a model in a repository.

const (
	configFile = "config.json"
	maxConfig  = 1 << 20
)

// modelConfig is what a config.json may say. All of it has the defaults of the options that it becomes.
type modelConfig struct {
	Batching *struct {
		Max          int      `json:"max"`
		Delay        duration `json:"delay"`
		Preferred    []int    `json:"preferred"`
		FailTogether bool     `json:"fail_together"`
	} `json:"batching"`
	Queue *struct {
		Max          *int64   `json:"max"`
		Timeout      duration `json:"timeout"`
		Levels       int      `json:"levels"`
		DefaultLevel int      `json:"default_level"`
	} `json:"queue"`
	Instances *int `json:"instances"`
	// RunTimeout is how long a run may take.
	RunTimeout *duration `json:"run_timeout"`
	Threads    *int      `json:"threads"`
	Sequences  *struct {
		Max  *int64   `json:"max"`
		Idle duration `json:"idle"`
	} `json:"sequences"`
	Ragged []struct {
		Input   string      `json:"input"`
		Dim     int         `json:"dim"`
		Value   json.Number `json:"value"`
		Step    int         `json:"step"`
		Padding *float64    `json:"padding"`
		Cut     []struct {
			Output string `json:"output"`
			Dim    int    `json:"dim"`
		} `json:"cut"`
	} `json:"ragged"`
	// Versions is how many of the highest versions that can be loaded are served; 0: all.
	Versions int `json:"versions"`
	// Warmup are the shapes of inputs of runs before the model goes into service.
	Warmup []map[string][]int64 `json:"warmup"`
	// Inputs are those of a TorchScript file, and Outputs those of one or of an AOTInductor package: they do not say of which
	// type and shape these are.
	Inputs     []modelSpec `json:"inputs"`
	Outputs    []modelSpec `json:"outputs"`
	MapWeights bool        `json:"map_weights"`
	AnyTorch   bool        `json:"any_torch"`
}

type modelSpec struct {
	Name  string   `json:"name"`
	Type  DataType `json:"type"`
	Shape []int64  `json:"shape"`
}

// duration is a text such as "2ms".
type duration time.Duration

func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is no duration: write \"2ms\", or \"1m30s\"", data)
	}
	value, err := time.ParseDuration(text)
	*d = duration(value)
	return err
}

// parseConfig reads a config.json. What it does not know is an error.
func parseConfig(data []byte) (*modelConfig, error) {
	c := &modelConfig{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %s", configFile, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err == nil || !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is something after the configuration", configFile)
	}
	if c.Versions < 0 {
		return nil, fmt.Errorf("%s: versions is %d, and must not be negative", configFile, c.Versions)
	}
	if len(c.Warmup) > 64 {
		return nil, fmt.Errorf("%s: there are %d runs in warmup, and may be 64", configFile, len(c.Warmup))
	}
	return c, nil
}

// options are those of Add.
func (c *modelConfig) options() []ModelOption {
	var all []ModelOption
	if b := c.Batching; b != nil {
		all = append(all, Batching{b.Max, time.Duration(b.Delay), b.Preferred, b.FailTogether})
	}
	if q := c.Queue; q != nil {
		one := Queue{Timeout: time.Duration(q.Timeout), Levels: q.Levels, DefaultLevel: q.DefaultLevel}
		if q.Max != nil {
			one.Max = *q.Max
		}
		all = append(all, one)
	}
	if c.Instances != nil {
		all = append(all, Instances(*c.Instances))
	}
	if c.RunTimeout != nil {
		all = append(all, RunTimeout(*c.RunTimeout))
	}
	if c.Threads != nil {
		all = append(all, Threads(*c.Threads))
	}
	if s := c.Sequences; s != nil {
		one := Sequences{Idle: time.Duration(s.Idle)}
		if s.Max != nil {
			one.Max = *s.Max
		}
		all = append(all, one)
	}
	for _, r := range c.Ragged {
		one := Ragged{Input: r.Input, Dim: r.Dim, Step: r.Step}
		if r.Value != "" {
			if n, err := r.Value.Int64(); err == nil {
				one.Value = n
			} else if f, err := r.Value.Float64(); err == nil {
				one.Value = f
			}
		}
		if r.Padding != nil {
			one.Padding = *r.Padding
		}
		for _, cut := range r.Cut {
			one.Cut = append(one.Cut, Cut(cut))
		}
		all = append(all, one)
	}
	return all
}
