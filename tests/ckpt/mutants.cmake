# Rules of PROTOCOL.md, each with a mutant of ckpt/ that breaks it (anyorder_mutate in
# ../CMakeLists.txt) and the cases that find it.
set(mutated "")

# ckpt_mutant(<name> <file> <filter> <before> <from> <to>)
function(ckpt_mutant name file filter before from to)
  anyorder_mutate(copy ${name} ckpt/${file} "${before}" "${from}" "${to}")
  list(APPEND mutated ${copy})
  set(mutated ${mutated} PARENT_SCOPE)
  anyorder_mutant_test(ckpt ${name} ckpt.mutants_test ${filter} faults)
endfunction()

# "Write order", 1: there is room; a step that is committed already is not written; a directory's
# name is synced.
ckpt_mutant(room commit.cc ServiceTest.TooLittleSpaceIsSeenBeforeWriting
  "if (" [[free >= wanted]] [[true]])
ckpt_mutant(committed_step commit.cc CommitTest.ACommittedStepIsNeverReplaced
  "existing.status();\n  if (" [[whole.ok()]] [[false]])
ckpt_mutant(directory_sync commit.cc Nodes/PowerCutTest.EveryCrashLeaves*
  "(made)) return made;\n  " [[RETURN_IF_ERROR(fs_->SyncDirectory(CheckpointsPath(run_dir_)));]] "")
# 2: staged bytes have their sums; files and their names are synced before the vote.
ckpt_mutant(staged_sums commit.cc CommitTest.StagedBytesThatChanged*
  "if (status.ok()) status = " [[CheckStaged(file, begin, bytes, block)]] [[absl::OkStatus()]])
ckpt_mutant(file_sync commit.cc CommitTest.WhatAVote*
  "" [[RETURN_IF_ERROR(file->SyncData());]] "")
ckpt_mutant(file_name_sync commit.cc CommitTest.WhatAVote*
  "" [[RETURN_IF_ERROR(fs_->SyncDirectory(directory));]] "")
# 4: all votes, of one save, which nobody has given up, with each tensor covered once.
ckpt_mutant(all_votes commit.cc CommitTest.CommitNeedsTheVotesOfAllNodes
  "if (" [[!missing_.empty()]] [[false]])
ckpt_mutant(votes_of_one_save commit.cc CorruptionTest.AnyDamageToAVote*
  "if (" [[!(vote.id == id) || vote.node != node]] [[false]])
ckpt_mutant(given_up_unvoted commit.cc CommitTest.OneNodeGivingUp*
  "" [[RETURN_IF_ERROR(CheckNotBad(node));]] "")
ckpt_mutant(given_up_voted commit.cc RecoverVotedTest.WhatIsNotWhole*
  "" [[RETURN_IF_ERROR(CheckNotBad(static_cast<int>(node)));]] "")
ckpt_mutant(tensors_covered manifest.cc CommitTest.VotesThatLeaveAGap*
  "});\n    " [[RETURN_IF_ERROR(CheckTensor(name, tensor, manifest.files));]] "")
# 6: the lease is asked last, of whoever commits; then the name is synced.
ckpt_mutant(commit_fence commit.cc CommitTest.AFencedCoordinator*
  "" [[RETURN_IF_ERROR(fence());]] "")
ckpt_mutant(commit_sync commit.cc Nodes/PowerCutTest.EveryCrashLeaves*
  "Annotate(" [[fs_->SyncDirectory(CheckpointsPath(run_dir_))]] [[absl::OkStatus()]])
# 7: CURRENT is a hint.
ckpt_mutant(current_is_a_hint commit.cc Nodes/IoErrorTest.*
  "" [[if (!hinted.ok()) LogWarning(absl::StrCat("CURRENT not updated: ", hinted.message()));]]
  [[RETURN_IF_ERROR(hinted);]])

# "Who asks whom": a node that waits looks at all names now and then, at an end before what was
# decided before it, and takes no other save's commit for its own.
ckpt_mutant(looks_at_first save_writer.cc SaveWriterTest.AVoteThatIsTooLate*
  "if (" [[look % kLooksToAllNames != 0]] [[true]])
ckpt_mutant(looks_later save_writer.cc SaveWriterTest.ACoordinatorThatEndsLater*
  "" [[look % kLooksToAllNames]] [[look]])
ckpt_mutant(end_before_decision save_writer.cc SaveWriterTest.WhatTheCoordinatorDecided*
  "" [[if (log_->CoordinatorHasEnded(id.attempt))
    *ended = "the coordinator's service ended and has decided nothing";
  return log_->ReadOutcome(id);]]
  [[const absl::Status outcome = log_->ReadOutcome(id);
  if (log_->CoordinatorHasEnded(id.attempt)) *ended = "ended";
  return outcome;]])
ckpt_mutant(end_before_vote commit.cc CommitTest.AVoteBeforeTheEnd*
  "if (" [[fs_->OpenForRead(ended).ok() && !records.IsThere(node)]]
  [[!records.IsThere(node) && fs_->OpenForRead(ended).ok()]])
ckpt_mutant(own_commit commit.cc CommitTest.AnotherNodesCommit*
  "" [[committed->generation() == id.generation]] [[true]])
ckpt_mutant(others_commit_sync commit.cc CommitTest.AnotherNodesCommit*
  "return " [[fs_->SyncDirectory(
        CheckpointsPath(run_dir_))]] [[absl::OkStatus()]])
ckpt_mutant(vote_fence save_writer.cc SaveWriterTest.WaitsForNoVote*
  "" [[if (const absl::Status held = fence_(); absl::IsAborted(held)) return held;]] "")

# "Reading back": older ones go when all nodes have found theirs good; a damaged one is set aside,
# unless it is another's by then.
ckpt_mutant(damage_retires_none save_writer.cc SaveWriterTest.RetiresAndSetsAside*
  "" [[if (found.ok()) return Retire(progress.id);]] [[Retire(progress.id);]])
ckpt_mutant(damage_is_set_aside save_writer.cc SaveWriterTest.RetiresAndSetsAside*
  "if (save.is_coordinator && (" [[IsDamage(found)]] [[false]])
ckpt_mutant(others_read_back save_writer.cc SaveWriterTest.ANodeThatDoesNotSay*
  "found = " [[AwaitOthers(progress.id)]] [[absl::OkStatus()]])
ckpt_mutant(silence_is_not_damage save_writer.cc SaveWriterTest.ANodeThatDoesNotSay*
  "if (" [[absl::IsDeadlineExceeded(found)]] [[false]])
ckpt_mutant(sets_own_aside save_writer.cc SaveWriterTest.SetsAsideOnlyWhatItReadBack
  "" [[if (bad.ok() && bad->generation() != id.generation) return;]] "")

# "Giving up": a service whose lease was taken touches nothing.
ckpt_mutant(give_up_fence save_writer.cc SaveWriterTest.GivesUpNothing*
  "" [[!absl::IsAborted(fence_())]] [[true]])
ckpt_mutant(retire_fence save_writer.cc SaveWriterTest.RetiresAndSetsAside*
  "absl::Status retired = " [[fence_()]] [[absl::OkStatus()]])
ckpt_mutant(set_aside_fence save_writer.cc SaveWriterTest.RetiresAndSetsAside*
  "" [[if (!fence_().ok()) return;]] "")
# On one node the name goes first, durably; on several the coordinator's record comes before votes
# go, and a node's files stay after its vote.
ckpt_mutant(trash_first commit.cc CommitTest.GivingUpOnOneNode*
  "status = " [[MoveToTrash(directory, id.generation)]] [[RemoveDirectoryWithFiles(fs_, directory)]])
ckpt_mutant(trash_sync commit.cc CommitTest.GivingUpOnOneNode*
  "" [[if (status.ok()) status = fs_->SyncDirectory(CheckpointsPath(run_dir_));]] "")
ckpt_mutant(decision_for_all commit.cc CommitTest.OneNodeGivingUp*
  "is_coordinator ? " [[kDecidedAgainstName]] [[AbandonedName(node)]])
ckpt_mutant(record_before_votes commit.cc CommitTest.OneNodeGivingUp*
  "" [[status = WriteFileAtomically(fs_, JoinPath(directory, record), reason);]]
  [[if (is_coordinator) fs_->RemoveFile(JoinPath(directory, VoteName(0))).IgnoreError();
    status = WriteFileAtomically(fs_, JoinPath(directory, record), reason);]])
ckpt_mutant(coordinator_removes_files commit.cc CommitTest.OneNodeGivingUp*
  "" [[absl::StartsWith(name, kRankFilePrefix)]] [[false]])
ckpt_mutant(coordinator_removes_votes commit.cc CommitTest.OneNodeGivingUp*
  "|| " [[IsVoteName(name)]] [[false]])
ckpt_mutant(files_go_before_the_vote commit.cc CommitTest.OneNodeGivingUp*
  "" [[fs_->RemoveFile(JoinPath(directory, RankFileName(ranks[i], id.world_size))).IgnoreError();]] "")
ckpt_mutant(files_stay_after_the_vote commit.cc CommitTest.OneNodeGivingUp*
  "i = 0; " [[!has_voted]] [[true]])

# "Recovery": of an earlier attempt, this run's, by the votes of all, undecided, newer than what is
# committed, claimed first, with every byte; an error of the disk leaves it.
ckpt_mutant(earlier_attempt takeover.cc RecoverVotedTest.ADiskThatDoesNotAnswer*
  "" [[save->generation >= attempt * kGenerationsPerAttempt]] [[false]])
ckpt_mutant(own_run takeover.cc RecoverVotedTest.ADiskThatDoesNotAnswer*
  "" [[vote.id.run_id != run_id]] [[false]])
ckpt_mutant(own_generation takeover.cc RecoverVotedTest.WhatIsNotWhole*
  "" [[vote.id.generation != generation]] [[false]])
ckpt_mutant(undecided takeover.cc RecoverVotedTest.WhatIsNotWhole*
  "" [[RETURN_IF_ERROR(CheckUndecided(directory));]] "")
ckpt_mutant(newer_than_committed takeover.cc RecoverVotedTest.WhatIsNotWhole*
  "" [[if (ParseTemporaryName(BaseName(claimed))->step <= committed) continue;]] "")
ckpt_mutant(claim_first takeover.cc RecoverVotedTest.WhatTheOldService*
  "" [[JoinPath(parent, ClaimedName(save->step, save->generation, attempt))]] [[JoinPath(parent, name)]])
ckpt_mutant(every_byte takeover.cc RecoverVotedTest.WhatIsNotWhole*
  "return whole;\n    if (" [[!whole.ok()]] [[false]])
ckpt_mutant(votes_that_cannot_be_read takeover.cc RecoverVotedTest.ADiskThatDoesNotAnswer*
  "absl::IsAborted(voted.status()) || " [[IsDamage(voted.status())]] [[!voted.ok()]])
ckpt_mutant(files_that_cannot_be_read takeover.cc RecoverVotedTest.ADiskThatDoesNotAnswer*
  "" [[if (!whole.ok() && !IsDamage(whole)) return whole;]] "")
# A save that a later attempt has claimed is its own.
ckpt_mutant(claimed_by_a_later_one takeover.cc RecoverVotedTest.WhatALaterStart*
  "" [[save->attempt > attempt]] [[false]])
ckpt_mutant(removed_from_a_later_one commit.cc RecoverVotedTest.WhatALaterStart*
  "" [[save->attempt <= below_generation / kGenerationsPerAttempt]] [[true]])
ckpt_mutant(removed_while_written commit.cc Nodes/PowerCutTest.EveryCrashLeaves*
  "" [[save->generation < below_generation]] [[true]])

# "Retention": what does not open stays and does not count, nor do newer ones count; a name goes
# before its files, durably; one that was retired too late is taken back.
ckpt_mutant(evidence_stays commit.cc CommitTest.RetentionKeeps*
  "" [[if (!info.opens) continue;]] "")
ckpt_mutant(newer_do_not_count commit.cc CommitTest.RetentionKeeps*
  "" [[if (info.step > StepOfGeneration(generation)) continue;]] "")
ckpt_mutant(two_at_least commit.cc CommitTest.RetentionKeeps*
  "" [[std::max(keep_last, 2)]] [[keep_last]])
ckpt_mutant(retired_name_first commit.cc Nodes/PowerCutTest.EveryCrashLeaves*
  "RETURN_IF_ERROR(" [[fs_->Rename(info.directory,
                                JoinPath(CheckpointsPath(run_dir_), RetiredName(info.generation)))]]
  [[RemoveDirectoryWithFiles(fs_, info.directory)]])
ckpt_mutant(retired_name_sync commit.cc Nodes/PowerCutTest.EveryCrashLeaves*
  "" [[RETURN_IF_ERROR(fs_->SyncDirectory(parent));]] "")
ckpt_mutant(retired_too_late commit.cc LateCallTest.ACheckpointThatWasRetired*
  "" [[retired->step() <= newest]] [[true]])
ckpt_mutant(retired_in_time commit.cc CommitTest.RetentionKeeps*
  "" [[retired->step() <= newest]] [[false]])
ckpt_mutant(unproven_do_not_count commit.cc CommitTest.MetadataSays*
  "if (" [[!info.is_unproven]] [[true]])
ckpt_mutant(newest_unproven commit.cc CommitTest.MetadataSays*
  "is_recent && " [[!is_one_too_many]] [[true]])
ckpt_mutant(named_stays commit.cc CommitTest.MetadataSays*
  "" [[if (info.step == named) continue;]] "")
ckpt_mutant(every_mth commit.cc CommitTest.RetentionKeeps*
  "keep_every > 0 && " [[info.step % keep_every == 0]] [[false]])

# "Late calls": what is found bad has a name of its generation; a save that stays in reach ends the
# start; what ended is forgotten.
ckpt_mutant(quarantine_of_its_generation reader.cc LateCallTest.AStepThatWas*
  "" [[QuarantineName(dir, generation)]] [[QuarantineName(dir, 0)]])
ckpt_mutant(out_of_reach takeover.cc ServiceTest.ASaveThatCannotBePut*
  "too late.\n      if (" [[absl::IsNotFound(moved) || absl::IsAlreadyExists(moved)]] [[!moved.ok()]])
ckpt_mutant(ended_is_forgotten commit.cc SeveralNodesTest.AServiceThatEnded*
  "" [[if (ended && *ended < attempt) fs_->RemoveFile(JoinPath(parent, name)).IgnoreError();]] "")

# "Lease and restarts": who lives keeps it; who claims removes all other claims, and looks again.
ckpt_mutant(lease_of_a_later_start lease.cc LeaseTest.AnEndedOwner*
  "" [[owner->attempt >= me.attempt]] [[owner->attempt > me.attempt]])
ckpt_mutant(lease_of_the_living lease.cc LeaseTest.ALivingOwnerIsNamed
  "if (" [[is_local]] [[false]])
ckpt_mutant(lease_that_beats lease.cc LeaseTest.ALivingOwnerElsewhere*
  "" [[(is_readable && first != text)]] [[false]])
ckpt_mutant(lease_is_watched lease.cc LeaseTest.ALivingOwnerElsewhere*
  "" [[clock->Now() - start > lifetime]] [[true]])
ckpt_mutant(lease_of_a_reused_number lease.cc LeaseTest.AReusedProcessNumber*
  "" [[StartTimeOf(owner.pid) != owner.pid_start]] [[StartTimeOf(owner.pid) == 0]])
ckpt_mutant(lease_renewed_unread lease.cc LeaseTest.ASilentOwner*
  "renewed = " [[Replace([this] { return CheckHeld(); })]] [[Replace([] { return absl::OkStatus(); })]])
ckpt_mutant(lease_of_the_owners_name lease.cc LeaseTest.WhatOtherClaimants*
  "" [[RemoveIfThere(fs, ClaimPath(run_dir, *owner))]] [[absl::OkStatus()]])
ckpt_mutant(lease_of_other_claimants lease.cc LeaseTest.WhatOtherClaimants*
  "" [[RETURN_IF_ERROR(RemoveIfThere(fs, path));]] "")
ckpt_mutant(lease_looks_again lease.cc LeaseTest.AClaimThatAnother*
  "" [[if (absl::IsAborted(held)) return absl::AlreadyExistsError(held.message());
  RETURN_IF_ERROR(held);]] "")
ckpt_mutant(lease_found_changed lease.cc LeaseTest.AClaimThatAnother*
  "return " [[text == found]] [[true]])

# "A save is abandoned when": ranks leave, disagree, go on or are late; it is decided once.
ckpt_mutant(all_ranks_stage save_assembly.cc SaveAssemblyTest.IsComplete*
  "if (" [[static_cast<int>(save.ranks.size()) == save.local_world_size]] [[true]])
ckpt_mutant(rank_left_before save_assembly.cc SaveAssemblyTest.ARankThatLeaves*
  "}\n  " [[AbandonMissing();]] "")
ckpt_mutant(rank_leaves save_assembly.cc SaveAssemblyTest.ARankThatLeaves*
  "gone_.insert(rank);\n  " [[AbandonMissing();]] "")
ckpt_mutant(ranks_mean_one_step save_assembly.cc SaveAssemblyTest.RanksMustMean*
  "" [[!(save.id == id) || save.local_world_size != local_world_size]] [[false]])
ckpt_mutant(metadata_agree save_assembly.cc SaveAssemblyTest.MetadataMustAgree
  "" [[!staged.metadata.empty() && staged.metadata != complete.job.metadata]] [[false]])
ckpt_mutant(late_ranks save_assembly.cc SaveAssemblyTest.LateSaves*
  "" [[it->second.began < limit]] [[false]])
ckpt_mutant(ranks_go_on save_assembly.cc SaveAssemblyTest.ARankThatGoesOn*
  "is_left_behind = " [[it->second.ranks.count(rank) == 0]] [[false]])
ckpt_mutant(decided_once save_assembly.cc SaveAssemblyTest.IsComplete*
  "" [[if (const auto it = decided_.find(id.generation); it != decided_.end())
    return absl::FailedPreconditionError(it->second);]] "")
# Messages of another start, and a request to end while trainers are there.
ckpt_mutant(other_attempt service.cc ServiceTest.AnotherAttemptIsRefused
  "" [[message->run_id != options_.run_id || message->attempt != options_.attempt]] [[false]])
ckpt_mutant(only_if_idle service.cc ServiceTest.ASecondStartIsRefused*
  "" [[shutdown.only_if_idle && num_trainers() > 0]] [[false]])

# "Frames": of this protocol and whole, of this user, in a directory of his own, with memory that
# stays.
ckpt_mutant(frame_magic protocol.cc ChannelTest.GarbageIsRefused
  "" [[WordAt(in_, taken_) != kMagic]] [[false]])
ckpt_mutant(frame_checksum protocol.cc ChannelTest.GarbageIsRefused
  "" [[Crc32c(body.data(), length) != WordAt(in_, taken_ + 8)]] [[false]])
ckpt_mutant(private_directory protocol.cc SocketTest.ADirectoryOpenToOthers*
  "" [[(info.st_mode & 077) != 0]] [[false]])
ckpt_mutant(sealed_memory staging_buffer.cc StagingBufferTest.MemoryThatCouldShrink*
  "" [[(seals & kSeals) != kSeals]] [[false]])

# All of ckpt/, mutated or not, in the order of the library's unity build, and ckpt_test's tests.
file(GLOB sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ckpt/*.cc)
foreach(file IN LISTS sources)
  if(${CMAKE_CURRENT_BINARY_DIR}/mutants/${file} IN_LIST mutated)
    set(file tests/ckpt/mutants/${file})
    list(APPEND all ${PROJECT_BINARY_DIR}/${file})
  else()
    list(APPEND all ${PROJECT_SOURCE_DIR}/${file})
  endif()
endforeach()
add_executable(ckpt.mutants_test ${all} $<TARGET_OBJECTS:ckpt_test>)
target_compile_options(ckpt.mutants_test PRIVATE -include ${PROJECT_SOURCE_DIR}/tests/testing/mutant.h)
target_link_libraries(ckpt.mutants_test PRIVATE anyorder_options anyorder::liveness nlohmann_json::nlohmann_json
  absl::time GTest::gtest_main GTest::gmock)
