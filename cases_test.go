package sqlherd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What users of other wrappers and caches have seen go wrong, and the tests that hold the right value for each: wrapping a driver
// (A), cached rows that differ from the driver's (B), keys (C), writes (E), texts and hints (F).
var cases = []struct{ id, saw, tests string }{
	{"A01", "a slice is refused by a prepared statement whose connection would have taken it", "TestAStatementWithoutAHintBehavesAsOnTheBareDriverWhateverTheDriverImplements TestMissAndHitCannotBeToldFromTheBareDriverWhateverItImplements"},
	{"A02", "a uint64 with its high bit set is refused", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestArgumentsOfDifferentTypesAreDifferentQueries"},
	{"A04", "a statement's own conversion of its arguments is left out", "TestAStatementWithoutAHintBehavesAsOnTheBareDriverWhateverTheDriverImplements"},
	{"A05", "COPY through a prepared statement fails", "TestCopyOfLibPqWorksAndInvalidatesWhenItIsCommitted"},
	{"A07", "SQLite's backup cannot be reached", "TestBackupOfSQLiteWorksThroughRaw"},
	{"A08", "what a driver's result tells beyond the standard is lost", "TestRowsAndResultsReachTheCallerAsTheDriverMadeThem TestTheResultOfSeveralMySQLStatementsIsTheDriversOwnBeneathTheWrapper TestTheResultOfSeveralMySQLStatementsIsThereThroughRaw"},
	{"A10", "broken connections stay in the pool, or all are thrown away", "TestADriverWithoutValidatorIsValidAndOneThatHasItIsAsked TestAConnectionThatIsNotValidAnyMoreIsReplacedAndOneWithoutTheQuestionIsKept"},
	{"A11", "the isolation that was asked for is dropped", "TestABeginTxThatTheDriverCannotHonourIsRefusedInDatabaseSQLsWords TestTheIsolationThatIsAskedForDecidesWhatATransactionSees TestTheIsolationAndReadOnlyThatAreAskedForAreSet"},
	{"A13", "column types vanish or are made up", "TestRowsOfEverySubsetOfInterfacesAreTheSameOnEveryWay TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestRowsOverTheCapsKeepTheirColumnTypes"},
	{"A14", "a call is counted twice when the driver asks for a prepared one", "TestADriverThatAnswersErrSkipHasOneMissOneLoadAndThenHitsWithoutPreparing TestADriverThatAnswersErrSkipIsCountedOnceForEveryKindOfQuery TestTheServerIsSentTheSameBytesInAsManyRoundTripsAndNoneForAHit"},
	{"A16", "a renamed driver makes an ORM use other placeholders", "TestTheNameOfTheDriverDecidesThePlaceholders TestNamedAndInRebindAroundAHint"},
	{"A17", "a configuration registered with the driver is not known to the wrapper", "TestAConfigurationRegisteredWithPgxIsFoundByTheWrappedDriver TestTheDriversConnectorIsMadeOnceAndClosedOnce"},
	{"A19", "an interface that Go adds is hidden", "TestRowsAndResultsReachTheCallerAsTheDriverMadeThem TestWhatOnlyTheDriverCanScanIntoIsFilledOnEveryWay"},
	{"A20", "a ping succeeds though the server has gone", "TestPingAsksTheDatabaseAndIsNeverAnsweredFromTheCache"},
	{"A22", "a call without a context panics", "TestAStatementWithoutAHintBehavesAsOnTheBareDriverWhateverTheDriverImplements"},
	{"A23", "a bad connection is retried too often, or a write runs twice", "TestABadConnectionIsRetriedAndNobodyIsToldOfIt TestAWriteRunsOnceAndSucceedsThoughRedisCannotBeTold"},

	{"B01", "rows cut short by a lost connection are taken for complete", "TestRowsThatWereCutShortAreNeverStored TestRowsThatFailLateAreReadUpToTheirErrorAsOnTheBareDriver"},
	{"B02", "rows cut short by a cancelled request are served to everybody", "TestRowsThatWereCutShortAreNeverStored"},
	{"B04", "numbers change their Go type with the protocol", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestTheExecModesOfPgxShareARedisAndNotTheirRows TestSettingsOfTheDSNKeepRowsApart"},
	{"B05", "cached bytes change, since the driver uses its buffer again", "TestAnEntryKeepsEachRowsOwnBytesWhateverItsReadersDo TestABuilderKeepsNothingOfTheDriversBuffers TestWhatOneReaderWritesIntoItsRowsNobodyElseSees"},
	{"B07", "a time comes back in another location", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestATimeKeepsTheRulesOfItsLocation TestTheComparisonOfSightsTellsThemApart"},
	{"B08", "SQLite's times become text", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"B10", "empty bytes become NULL", "TestEmptyBytesNilBytesAndNULLStayApart TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"B11", "an int64 becomes a float64", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestEveryValueComesBackAsItWas"},
	{"B13", "a BIGINT UNSIGNED loses its highest bit", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"B14", "NaN and infinities cannot be stored", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"B16", "columns of one name are one column", "TestDuplicateAndEmptyColumnNamesKeepTheirOrder TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestTwoTextsWhoseColumnsHaveOtherNamesDoNotShareRows"},
	{"B17", "JSON is written anew", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"B19", "only the first result set is kept", "TestTwoResultSetsBothArriveAndAreNotCached TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestSeveralStatementsThroughPgxsSimpleProtocol"},
	{"B20", "a literal and a parameter are taken for the same", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestArgumentsOfDifferentTypesAreDifferentQueries"},

	{"C01", "rows of another database of the same server", "TestTwoDatabasesNeverSeeEachOthersRows TestRowsOfOneDatabaseOrUserNeverReachAnother TestAConnectionWithASessionOfItsOwnBypassesAndNobodyElseIsAffected TestASessionReadsWhatTheBareDriverReadsWhateverItsStateAndNobodyElseDoes"},
	{"C02", "rows of another tenant's schema, since the text is the same", "TestASessionReadsWhatTheBareDriverReadsWhateverItsStateAndNobodyElseDoes TestTwoSearchPathsNeverSeeEachOthersRows TestTwoRolesWithSearchPathsOfTheirOwnNeverSeeEachOthersRows TestASearchPathThatALoginIsGivenLaterIsFollowedOnceTheRowsAreForgotten TestRowsThatAPolicyHidesAreNotSeenByAnotherTenant TestAScopeIsSharedInsideATenantAndByNobodyElse"},
	{"C04", "rows are served after the privilege is gone", "TestAPrivilegeThatIsTakenAwayIsNoticedWhenTheRowsAreForgotten TestALoginsPolicyIsNotAnothersWithTheSameStatement TestTwoUsersNeverSeeEachOthersRows"},
	{"C05", "rows of another time zone", "TestSettingsOfTheDSNKeepRowsApart"},
	{"C07", "two lists of arguments that look alike share their rows", "TestListsThatOnlyLookAlikeHaveDifferentKeys TestEveryPartOfAKeyCounts TestKeysAreEqualExactlyWhenTheirPartsAre FuzzKeysDistinct TestScopesSeeOnlyTheirOwnRows TestOddTagsWorkOnEveryRedis TestATagOfAContextThatNobodyCouldInvalidateKeepsItsQueryFromTheCache"},
	{"C08", "arguments that are equal but for their type share their rows", "TestArgumentsThatLookAlikeAreAnsweredAsOnTheBareDriver TestArgumentsOfDifferentTypeOrValueHaveDifferentKeys TestArgumentsOfDifferentTypesAreDifferentQueries TestTheSameArgumentHasTheSameKeyEachTime"},
	{"C10", "two apps on one Redis read or flush each other's entries", "TestTwoAppsOnOneRedisWithoutANamespaceKeepTheirRowsAndWhatIsNotTheirs TestEntriesOfOneNamespaceAreNothingToAnother TestTwoDatabasesNeverSeeEachOthersRows"},
	{"C11", "a tenant's refresh, or its missing row, is another's", "TestATenantsRowsStayItsOwnOnEveryWayToServeThem TestAScopeIsSharedInsideATenantAndByNobodyElse"},
	{"C13", "two queries whose digests collide share their rows", "TestDamagedEntriesAreMissesAndCounted TestAnEntryCopiedUnderAnotherNameIsAMiss TestAnEntryIsOnlyItsOwnKeys"},
	{"C14", "a prepared statement's rows come in the shape of another protocol's", "TestTheExecModesOfPgxShareARedisAndNotTheirRows TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestEveryPartOfAKeyCounts"},
	{"C16", "named arguments are told apart by their order alone, or not at all", "TestNamedArgumentsAreKeyedByTheirNames TestListsThatOnlyLookAlikeHaveDifferentKeys TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"C17", "settings that decide the Go types of values are not in the key", "TestSettingsOfTheDSNKeepRowsApart TestTheExecModesOfPgxShareARedisAndNotTheirRows"},

	{"E01", "a load that began before a write stores old rows after it", "TestRowsThatWereReadBeforeAWriteAreNotServedAfterItThoughTheyArriveLater"},
	{"E02", "an invalidation that is faster than its write", "TestRowsThatWereReadWhileAWriteWasNotYetCommittedEndWithTheCommit TestReadersOfAHotKeyThatIsWrittenAllTheTimeGetNewRowsForOneLoadAWrite"},
	{"E04", "rows of a transaction that was rolled back are served", "TestATransactionThatIsRolledBackInvalidatesNothingAndStoresNothing TestWhatATransactionReadsOfItsOwnNeverReachesAnother TestACommitThatFailsLeavesTheOldRows TestACommitWhoseAnswerIsLostInvalidates"},
	{"E05", "a transaction does not read its own writes, or not its snapshot", "TestATransactionSeesItsOwnWritesAndNobodyElseDoesBeforeItCommits TestAReadInASnapshotIsTheSnapshots"},
	{"E07", "a write within a transaction is not seen", "TestEveryFormOfWriteInATransactionInvalidatesAfterTheCommit"},
	{"E08", "Redis was away when the write was made", "TestAWriteThatRedisCannotBeToldOfIsToldLater TestRowsAreRightWhateverHappensToRedis"},
	{"E10", "a table in a subquery, a join or a UNION is not seen", "TestAReadDependsOnEveryTableItNamesWhereverItNamesIt TestPostgresTouchesNoTableThatTheTextIsNotKnownToName TestMariaDBTouchesNoTableThatTheTextIsNotKnownToName TestSQLiteTouchesNoTableThatTheTextIsNotKnownToName"},
	{"E11", "the name of a CTE is taken for a table, or hides one", "TestAReadDependsOnEveryTableItNamesWhereverItNamesIt TestTableExpressionsHideTablesOnlyInScope TestTableExpressionsHideWhatTheServerSaysTheyHide"},
	{"E13", "a write that begins like a read is cached, or not seen", "TestAWriteThatLooksLikeAReadRunsEachTimeAndIsSeen TestGuardedStatementsRunEachTime TestEveryFormOfWriteEndsWhatReadsItsTable TestAProcedureThatWritesEndsEverythingOnce"},
	{"E14", "a write through Query is not seen, or is cached", "TestAWriteWithReturningInvalidatesHoweverEarlyItsRowsAreClosed TestAnInsertThatReturnsRunsEachTimeAndInvalidates"},
	{"E16", "TRUNCATE, REPLACE or another form of write is not seen", "TestEveryFormOfWriteEndsWhatReadsItsTable TestAProcedureThatWritesEndsEverythingOnce TestWritesAreWrites"},
	{"E17", "rows that a cascade has deleted are served", "TestWhatATextDoesNotNameIsInvalidatedWhenAHintNamesIt TestDeletedRowsAndCascadesAreForgottenRowByRow"},
	{"E19", "a write to what is under a view is not seen", "TestWhatATextDoesNotNameIsInvalidatedWhenAHintNamesIt TestAWriteThatLooksLikeAReadRunsEachTimeAndIsSeen TestPartitionsAndChildrenAreSeenFromBothEnds"},
	{"E20", "any statement that is not understood empties the cache", "TestWhatWritesNoTableEndsNoResult TestAStatementThatChangesNoRowsForgetsNothing"},
	{"E22", "rows have the columns from before the schema was changed", "TestAChangedSchemaIsSeenByTheNextRead TestASchemaThatAnotherProcessHasChangedIsSeen TestAWriteThatNobodyTellsOfIsSeenWhenTheRowsLifeEnds"},
	{"E23", "a replica that lags fills the cache with old rows", "TestAResultReadSoonAfterAWriteIsNotStoredWithAReplicaThatLags"},
	{"E25", "a transaction begun by a statement's text is taken for none", "TestATransactionBegunByAStatementInAnySpellingIsOne TestACommitInDisguiseInvalidates TestAConnectionThatIsClosedInATransactionOfTextsLeavesNothing"},
	{"E26", "a cached not-found outlives the insert", "TestACachedNotFoundEndsWithTheInsert"},
	{"E28", "a function of the moment or of the session is frozen", "TestGuardedStatementsRunEachTime TestTimeFunctionsAreCachedWhenAHintSaysSo TestVolatileCallsAreRefused TestTimeAndChance TestObstacles"},

	{"F01", "a dollar quote confuses the scanner", "TestWhatLooksLikeAHintInALiteralIsNone TestAMegabyteOfAnythingTerminates TestWorkIsLinearInTheText"},
	{"F02", "a hint in a literal turns caching on", "TestAHintThatIsDataIsNone TestWhatLooksLikeAHintInALiteralIsNone"},
	{"F04", "a trace in the text makes every query a miss", "TestTraceCommentsDoNotMakeAnotherKeyAndReachTheDatabase TestTracesAroundAQueryAreOneResult TestTracesDoNotSplitKeys"},
	{"F05", "texts without number fill the memory", "TestTextsWithoutNumberKeepABoundedNumberOfPlans"},
	{"F07", "a question mark in a comment is taken for a placeholder", "TestNoOptionOfAHintIsTakenForAnArgument TestNamedAndInRebindAroundAHint TestATagTakesTheArgumentThatItsStatementHasAtThatPlace TestMalformedHintsSayWhatAndWhere"},
	{"F08", "sqlc removes the comment", "TestAHintWithinALineSurvivesTheGeneratorAndOneOnItsOwnDoesNot TestAHintMayStandInAnyKindOfComment TestSqlcNames"},
	{"F10", "two dashes are a comment here and a sum there", "TestDialectsReadDifferently TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"F11", "a # is a comment here and an operator there", "TestDialectsReadDifferently TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"F13", "an apostrophe in a comment hides the rest", "TestCommentsAreFoundOnlyWhereTheyAre TestWritesTransactionsAndMistakesAreTheSameAsOnTheBareDriver"},
	{"F14", "a negative number makes a comment of the minus before it", "TestNobodyCanTellWhereRowsCameFromOnAnyDriver TestKeys"},
	{"F16", "nested comments end where they do not", "TestDialectsReadDifferently TestNobodyCanTellWhereRowsCameFromOnAnyDriver"},
	{"F17", "two hints: one of them is followed", "TestHints TestAMalformedHintRunsAsWithoutItIsCountedAndLoggedOncePerQuery"},
	{"F19", "an ORM takes the hint along to other statements", "TestAScopesHintIsInTheStatementOfItsCallAndInNoOther TestACommentsHintIsInTheStatementOfItsCallAndInNoOther TestAHintSurvivesWhereverSquirrelCanPutIt TestFirstOrCreateWithAHintCreatesWhatAnotherProgramHasJustCreated"},
	{"F20", "comments are removed on their way", "TestAPolicyInTheContextBeatsTheHint TestRulesCacheQueriesThatCannotBeEditedAndAHintBeatsThem"},
}

// testsDeclared returns the names of all tests and fuzz targets of all modules.
func testsDeclared(t *testing.T) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range decl.FindAllStringSubmatch(string(src), -1) {
			declared[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return declared
}

func TestEveryCaseHasATestThatHoldsIt(t *testing.T) {
	declared := testsDeclared(t)
	var ids []string
	for _, c := range cases {
		ids = append(ids, c.id)
		if c.tests == "" {
			t.Errorf("%s (%s): nothing holds it", c.id, c.saw)
		}
		for _, name := range strings.Fields(c.tests) {
			if !declared[name] {
				t.Errorf("%s (%s): there is no %s", c.id, c.saw, name)
			}
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(cases) {
		t.Error("the cases are not in order, or one is there twice")
	}
}
