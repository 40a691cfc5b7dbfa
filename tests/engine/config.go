// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Dialect names the engine that is imitated.
type Dialect string

// The dialects.
const (
	Ollama         Dialect = "ollama"
	LMStudio       Dialect = "lmstudio"
	LlamaCpp       Dialect = "llamacpp"
	LlamaCppRouter Dialect = "llamacpp-router"
	VLLM           Dialect = "vllm"
)

// Dialects lists all of them.
func Dialects() []Dialect { return []Dialect{Ollama, LMStudio, LlamaCpp, LlamaCppRouter, VLLM} }

// Config says what the engine is. The zero value is an Ollama on a free port of
// 127.0.0.1 with two models that answers at once.
type Config struct {
	Dialect  Dialect      // empty is Ollama
	Listener net.Listener // nil listens on a free port of 127.0.0.1; closed by the engine
	Models   []Model      // nil is DefaultModels; non-nil and empty is none
	Pace     Pace

	LoadDelay  time.Duration // how long a load takes
	MaxLoaded  int           // models loaded at once before one is evicted; 0 is without limit
	EvictCuts  bool          // an eviction ends running streams (LM Studio) instead of waiting for them (Ollama)
	Slots      int           // requests a model at once; 0 is without limit. A real Ollama has 1, llama.cpp 4
	QueueLimit int           // waiting requests before 503; 0 is without limit
	Ghost      time.Duration // how long a slot stays taken once its client has left

	Version     string        // as reported; empty is DefaultVersion
	APIKey      string        // demanded by every dialect but Ollama; empty demands none
	Origins     []string      // further origins Ollama allows; "*" allows all
	CORS        bool          // LM Studio: allow every origin
	JITOff      bool          // LM Studio: list and serve loaded models only. llama.cpp router: no autoload
	OnlyAnswers bool          // LM Studio: the only loaded model answers for any name
	Embeddings  bool          // llama.cpp: embeddings and metrics are on
	IdleTimeout time.Duration // of a kept connection; 0 is the dialect's own, negative never
	Registry    []string      // names that can be pulled; nil is any
	PullTick    time.Duration // between progress lines; 0 is 60 ms, as Ollama
	PullSteps   int           // progress lines a layer; 0 is 4
	Clock       bool          // real times in bodies, which then differ from answer to answer
	Witness     int           // records kept, the newest; 0 is 4096, negative none
}

// DefaultVersion is what the engine says its version is.
const DefaultVersion = "0.0.0-demo"

// Pace is how an answer is generated. A request's own token limit shortens it.
type Pace struct {
	Chunks     int           `json:"chunks"`     // tokens of an answer, each a chunk; 0 is 16
	ChunkBytes int           `json:"chunkBytes"` // least length of a token, padded; 0 leaves tokens as they are
	First      time.Duration `json:"firstNs"`    // before the first token
	Delay      time.Duration `json:"delayNs"`    // between tokens
	Joined     bool          `json:"joined"`     // all chunks in one write where no delay separates them
}

func (p Pace) chunks() int {
	if p.Chunks <= 0 {
		return 16
	}
	return p.Chunks
}

// Model is one model that the engine claims to have.
type Model struct {
	Name    string `json:"name"`
	Type    string `json:"type,omitempty"`      // "llm", "vlm" or "embedding"; empty is "llm"
	Size    int64  `json:"sizeBytes,omitempty"` // 0 is 132183
	Digest  string `json:"digest,omitempty"`    // 64 hex digits; empty is derived from the name
	Context int    `json:"context,omitempty"`   // in tokens; 0 is 4096
	Loaded  bool   `json:"loaded,omitempty"`    // from the start
}

// DefaultModels returns the models of a Config without any, named as the
// dialect names its own.
func DefaultModels(d Dialect) []Model {
	switch d {
	case LMStudio:
		return []Model{{Name: "nvpair-demo/demo-1b", Loaded: true}, {Name: "text-embedding-demo", Type: "embedding"}}
	case VLLM:
		return []Model{{Name: "nvpair/demo-1b", Loaded: true}}
	case LlamaCpp:
		return []Model{{Name: "demo.gguf", Loaded: true}}
	}
	return []Model{{Name: "demo:latest"}, {Name: "demo-embed:latest", Type: "embedding"}}
}

// complete fills in what a configured model left open.
func (m Model) complete() Model {
	if m.Type == "" {
		m.Type = "llm"
	}
	if m.Size == 0 {
		m.Size = 132183
	}
	if m.Digest == "" {
		sum := sha256.Sum256([]byte("nvpair demo engine " + m.Name))
		m.Digest = hex.EncodeToString(sum[:])
	}
	if m.Context == 0 {
		m.Context = 4096
	}
	return m
}

// withDefaults returns the configuration that a zero value stands for.
func (c Config) withDefaults() (Config, error) {
	if c.Dialect == "" {
		c.Dialect = Ollama
	}
	if !slices.Contains(Dialects(), c.Dialect) {
		return c, fmt.Errorf("unknown dialect %q", c.Dialect)
	}
	if c.Models == nil {
		c.Models = DefaultModels(c.Dialect)
	}
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if c.IdleTimeout == 0 && c.Dialect != Ollama {
		c.IdleTimeout = 5 * time.Second // llama.cpp, Node and uvicorn alike
	}
	if c.PullTick == 0 {
		c.PullTick = 60 * time.Millisecond
	}
	if c.PullSteps <= 0 {
		c.PullSteps = 4
	}
	if c.Witness == 0 {
		c.Witness = 4096
	}
	return c, nil
}

// ParseModels reads a list as the command line has it: names, separated by
// commas, each with "+loaded" or "+embedding" behind it where that holds.
func ParseModels(list string) ([]Model, error) {
	models := []Model{}
	for item := range strings.SplitSeq(list, ",") {
		name, marks, _ := strings.Cut(strings.TrimSpace(item), "+")
		if name == "" {
			continue
		}
		m := Model{Name: name}
		for mark := range strings.SplitSeq(marks, "+") {
			switch mark {
			case "":
			case "loaded":
				m.Loaded = true
			case "embedding", "vlm", "llm":
				m.Type = mark
			default:
				return nil, fmt.Errorf("model %s: unknown mark %q", name, mark)
			}
		}
		models = append(models, m)
	}
	return models, nil
}
