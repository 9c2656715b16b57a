// Entities that the tags of words name, and how many of those given are found: the score of CoNLL's
// shared tasks (Tjong Kim Sang and De Meulder 2003, conlleval), equal to seqeval 1.2.2 in its
// default mode to the last bit.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anyorder::metrics {

// An entity of one sentence.
struct Entity {
  std::string type;
  int64_t begin = 0;  // words [begin, end)
  int64_t end = 0;

  bool operator==(const Entity&) const = default;
};

// `tags`: of the words of one sentence, in their order, as the entities are.
//
// A tag is O, or one of B, I, E, S, a hyphen and a type, which may have hyphens of its own; with no
// type, or as a letter alone, it is of type "_". B and S always begin an entity. I and E go on with
// that of the tag before, and begin one where there is none, where it is of another type, and after
// E and S. That reads IOB2, IOB1 and IOBES, and refuses nothing.
//
// Any other tag, "" among them, is as O. (seqeval fails at "", and warns of others and takes their
// first letter for the prefix.)
std::vector<Entity> EntitiesOf(const std::vector<std::string>& tags);

// Entities of all types, of as many sentences as are added.
struct EntityCounts {
  int64_t predicted = 0;
  int64_t given = 0;
  int64_t shared = 0;  // in both: the same words and the same type

  void Add(const EntityCounts& other);

  // Micro averages, from 0 to 1; 0 where there is nothing to divide by.
  double precision() const;  // shared / predicted
  double recall() const;     // shared / given
  double f1() const;         // the harmonic mean of both
};

// Counts the entities of one sentence. REQUIRES equally many of both; none is allowed.
EntityCounts CountEntities(const std::vector<std::string>& predicted,
                           const std::vector<std::string>& given);

// Whether classes name entities, so that EntityCounts mean something: each is O or begins with B-,
// I-, E- or S-, and one at least with B- or I-.
bool AreEntityTags(const std::vector<std::string>& classes);

}  // namespace anyorder::metrics
