// SPDX-License-Identifier: Apache-2.0

//go:build linux

package clients

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// jobs counts jobs by the state in which they are.
type jobs map[string]int

// story is a function of a client's script, and the name of the model that it asks for.
type story struct {
	name string
	jobs jobs // what the router has of it in the end
	// alone is a story for the router only, which the engine by itself would end otherwise.
	alone  bool
	routed string // what the client sees then
}

var ollamaStories = []story{
	{name: "chat", jobs: jobs{"completed": 2}},
	{name: "generate", jobs: jobs{"completed": 2}},
	{name: "tools", jobs: jobs{"completed": 3}},
	{name: "embeddings", jobs: jobs{"completed": 2}},
	{name: "lists", jobs: jobs{"completed": 1}},
	{name: "unknown", jobs: jobs{}, alone: true, routed: `{"type":"ResponseError","name":"ResponseError","status":502,` +
		`"message":"no available node advertises the requested model"}`},
	{name: "errors", jobs: jobs{"failed": 2}},
	{name: "retried", jobs: jobs{"completed": 1, "failed": 1}, alone: true,
		routed: `{"type":"ResponseError","name":"ResponseError","status":400,"message":"the last word"}`},
	{name: "aborted", jobs: jobs{"cancelled": 1}},
	{name: "hundred", jobs: jobs{"completed": 100}},
	{name: "broken", jobs: jobs{"failed": 3}},
}

var openAIStories = []story{
	{name: "chat", jobs: jobs{"completed": 3}},
	{name: "tools", jobs: jobs{"completed": 3}},
	{name: "responses", jobs: jobs{"completed": 3}},
	{name: "completions", jobs: jobs{"completed": 2}},
	{name: "embeddings", jobs: jobs{"completed": 1}},
	{name: "lists", jobs: jobs{}},
	{name: "unknown", jobs: jobs{}, alone: true, routed: `{"type":"InternalServerError","name":"Error","status":502,` +
		`"message":"502 no available node advertises the requested model"}`},
	{name: "errors", jobs: jobs{"failed": 2}},
	{name: "retried", jobs: jobs{"completed": 1, "failed": 1}, alone: true,
		routed: `{"type":"BadRequestError","name":"Error","status":400,"message":"400 the last word"}`},
	{name: "aborted", jobs: jobs{"cancelled": 2}},
	{name: "hundred", jobs: jobs{"completed": 100}},
	{name: "broken", jobs: jobs{"failed": 2}},
}

var anthropicStories = []story{
	{name: "chat", jobs: jobs{"completed": 3}},
	{name: "tools", jobs: jobs{"completed": 3}},
	{name: "lists", jobs: jobs{}},
	{name: "unknown", jobs: jobs{}, alone: true, routed: `{"type":"InternalServerError","name":"InternalServerError",` +
		`"status":502,"message":"502 {\"error\":{\"message\":\"no available node advertises the requested model\",` +
		`\"type\":\"api_error\"},\"type\":\"error\"}"}`},
	{name: "errors", jobs: jobs{"failed": 2}},
	{name: "retried", jobs: jobs{"completed": 1, "failed": 1}, alone: true,
		routed: `{"type":"BadRequestError","name":"BadRequestError","status":400,"message":"the last word"}`},
	{name: "aborted", jobs: jobs{"cancelled": 2}},
	{name: "hundred", jobs: jobs{"completed": 100}},
	{name: "broken", jobs: jobs{"failed": 3}},
}

func TestTheOllamaLibraryDoesNotNoticeTheRouter(t *testing.T) {
	t.Parallel()
	tellAll(t, newStage(t, "ollama.mjs", ollama, ollamaStories), ollamaStories)
}

func TestTheOpenAILibraryDoesNotNoticeTheRouterBeforeOllama(t *testing.T) {
	t.Parallel()
	tellAll(t, newStage(t, "openai.mjs", ollama, openAIStories), openAIStories)
}

func TestTheOpenAILibraryDoesNotNoticeTheRouterBeforeLMStudio(t *testing.T) {
	t.Parallel()
	tellAll(t, newStage(t, "openai.mjs", lmStudio, openAIStories), openAIStories)
}

func TestTheAnthropicLibraryDoesNotNoticeTheRouterBeforeOllama(t *testing.T) {
	t.Parallel()
	tellAll(t, newStage(t, "anthropic.mjs", ollama, anthropicStories), anthropicStories)
}

// tellAll tells each story to the engine and to the router in front of it.
func tellAll(t *testing.T, s *stage, stories []story) {
	for _, st := range stories {
		t.Run(st.name, func(t *testing.T) {
			ports := []int{s.d.engine, s.d.facade}
			if st.alone {
				ports = ports[1:]
			}
			saw := s.tell(t, st.name, ports...)
			if st.alone {
				require.JSONEq(t, st.routed, string(saw[0]))
			} else {
				require.JSONEq(t, string(saw[0]), string(saw[1]))
			}
			if n := st.jobs["cancelled"]; n > 0 {
				s.awaitLeft(t, st.name, len(ports)*n)
			}
			s.awaitJobs(t, st)
		})
	}
}
